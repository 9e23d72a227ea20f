"""Partial results of attention added up, key block by key block."""

from __future__ import annotations

import torch
from torch import Tensor

from meshwright.modes.context.blocks import sum_dtype


class Merge:
    """The softmax over the keys seen so far, for all of a rank's queries.

    Sums are kept in `sum_dtype`. Rows that have seen no key are 0 with log-sum-exp -inf.
    """

    def __init__(self, q: Tensor, width: int) -> None:
        """Of queries q [batch, heads, queries, dim] and values of `width` numbers."""
        self._dtype = q.dtype
        self._like = q
        self._width = width
        self._out: Tensor | None = None
        self._lse: Tensor | None = None

    def add(self, start: int, stop: int, out: Tensor, lse: Tensor) -> None:
        """Adds the attention of queries start to stop over keys not yet seen."""
        wide = sum_dtype(self._dtype)
        out, lse = out.to(wide), lse.to(wide)
        if self._out is None and stop - start == self._like.shape[2]:
            self._out, self._lse = out, lse
            return
        whole, whole_lse = self._state()
        rows, rows_lse = whole[:, :, start:stop], whole_lse[:, :, start:stop]
        # sigmoid(lse₂ - lse₁) = exp(lse₂ - lse): the new part's share. Neither has seen a key: inf - inf, no share.
        share = torch.sigmoid(lse - rows_lse).nan_to_num_(0.0)
        rows.lerp_(out, share.unsqueeze(-1))
        rows_lse.copy_(torch.logaddexp(rows_lse, lse))

    def result(self) -> tuple[Tensor, Tensor]:
        """out in the queries' dtype, lse in `sum_dtype`."""
        out, lse = self._state()
        return out.to(self._dtype), lse

    def _state(self) -> tuple[Tensor, Tensor]:
        if self._out is None or self._lse is None:
            wide, (batch, heads, rows) = sum_dtype(self._dtype), self._like.shape[:3]
            # Laid out token by token, so that the product that comes next needs no copy.
            out = torch.zeros((batch, rows, heads, self._width), dtype=wide, device=self._like.device)
            self._out = out.transpose(1, 2)
            self._lse = torch.full((batch, heads, rows), float("-inf"), dtype=wide, device=self._like.device)
        return self._out, self._lse
