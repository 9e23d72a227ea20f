"""A rank's queries against the keys at hand: the pieces run through the kernels, results and gradients added up."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from meshwright.modes.context.blocks import attend, attend_backward, sum_dtype
from meshwright.modes.context.merge import Merge
from meshwright.modes.context.pieces import Piece, Runs, pieces


@dataclass(frozen=True)
class Rule:
    """Who sees whom."""

    causal: bool
    window: int
    """Tokens seen, itself among them; 0: all."""
    scale: float | None = None
    """What scores are multiplied by; None: 1/√dim."""


def add_block(
    merge: Merge, q: Tensor, k: Tensor, v: Tensor, rows: Runs, keys: Runs, rule: Rule, documents: Tensor | None
) -> None:
    """Adds to `merge` what queries at `rows` see of keys at `keys`. `documents` [batch, seq]: of the whole sequence."""
    for piece in _pieces(rows, keys, rule, documents):
        out, lse = attend(
            q[:, :, piece.row : piece.row_stop],
            k[:, :, piece.key : piece.key_stop],
            v[:, :, piece.key : piece.key_stop],
            causal=piece.kind == "causal",
            mask=_mask(piece, rule, documents, q.device),
            scale=rule.scale,
        )
        merge.add(piece.row, piece.row_stop, out, lse)


def add_block_gradients(
    dq: Tensor, dk: Tensor, dv: Tensor, saved: tuple[Tensor, Tensor, Tensor, Tensor], k: Tensor, v: Tensor, rows: Runs,
    keys: Runs, rule: Rule, documents: Tensor | None,
) -> None:  # fmt: skip
    """Adds the block's gradients to dq, dk and dv (in `sum_dtype`). `saved`: grad of out, q, out and lse."""
    for piece in _pieces(rows, keys, rule, documents):
        grad, q, out, lse = (t[:, :, piece.row : piece.row_stop] for t in saved)
        found = attend_backward(
            grad, q, k[:, :, piece.key : piece.key_stop], v[:, :, piece.key : piece.key_stop], out, lse,
            causal=piece.kind == "causal", mask=_mask(piece, rule, documents, q.device), scale=rule.scale,
        )  # fmt: skip
        dq[:, :, piece.row : piece.row_stop] += found[0]
        dk[:, :, piece.key : piece.key_stop] += found[1]
        dv[:, :, piece.key : piece.key_stop] += found[2]


def sides(block: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Of keys and values side by side [batch, kv_heads, seq, width + width of values]: both, not copied."""
    return block[..., :width], block[..., width:]


def wide_zeros(x: Tensor) -> Tensor:
    """Where the gradient of `x` is added up."""
    return torch.zeros(x.shape, dtype=sum_dtype(x.dtype), device=x.device)


def _pieces(rows: Runs, keys: Runs, rule: Rule, documents: Tensor | None) -> list[Piece]:
    return pieces(rows, keys, causal=rule.causal, window=rule.window, documents=documents is not None)


def _mask(piece: Piece, rule: Rule, documents: Tensor | None, device: torch.device) -> Tensor | None:
    """bool [1 or batch, 1, rows, keys] of a masked piece, None of another."""
    if piece.kind != "masked":
        return None
    row_stop = piece.row_place + piece.row_stop - piece.row
    key_stop = piece.key_place + piece.key_stop - piece.key
    rows = torch.arange(piece.row_place, row_stop, device=device)
    keys = torch.arange(piece.key_place, key_stop, device=device)
    distance = rows[:, None] - keys[None, :]
    seen = torch.ones_like(distance, dtype=torch.bool)
    if rule.causal:
        seen = distance >= 0
    if rule.window:
        seen = seen & (distance.abs() < rule.window)
    seen = seen[None, None]
    if documents is not None:
        of_rows, of_keys = documents[:, piece.row_place : row_stop], documents[:, piece.key_place : key_stop]
        seen = seen & (of_rows[:, None, :, None] == of_keys[:, None, None, :])
    return seen
