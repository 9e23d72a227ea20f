"""Experts: the stacked feed-forward parts of a mixture, and how one process carries tokens to them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from meshwright.modes import routing
from meshwright.modes.rows import inverse, spread_rows
from meshwright.train.models.architecture import Architecture
from meshwright.train.models.grouped import can_group, grouped_experts
from meshwright.train.models.mlp import ACTIVATIONS


class Experts(nn.Module):
    """`gate` and `up` [experts, width, hidden], `down` [experts, hidden, width]: the weights of all experts held."""

    def __init__(self, a: Architecture, device: torch.device | str, dtype: torch.dtype) -> None:
        super().__init__()
        h, e = a.model.hidden, a.model.experts
        assert e is not None
        self.act = ACTIVATIONS[a.activation]
        self.gate = nn.Parameter(torch.empty(e.count, e.ffn_hidden, h, device=device, dtype=dtype))
        self.up = nn.Parameter(torch.empty(e.count, e.ffn_hidden, h, device=device, dtype=dtype))
        self.down = nn.Parameter(torch.empty(e.count, h, e.ffn_hidden, device=device, dtype=dtype))

    def forward(self, x: Tensor, counts: Tensor) -> Tensor:
        """`apply_experts` on these weights."""
        return apply_experts(x, counts, self)


def apply_experts(x: Tensor, counts: Tensor, experts: Experts) -> Tensor:
    """Each row through its expert: [n, hidden] → [n, hidden]. Rows are sorted by expert, `counts` [experts] of each.

    Experts without rows cost nothing (on a GPU eight rows of zeros) and get a gradient of zeros.
    """
    gates: Tensor = experts.gate
    ups: Tensor = experts.up
    downs: Tensor = experts.down
    if torch.is_autocast_enabled(x.device.type):
        # Once for the stacks: autocast would cast each expert's weights by itself, and knows no grouped product.
        narrow = torch.get_autocast_dtype(x.device.type)
        x, gates, ups, downs = (t.to(narrow) for t in (x, gates, ups, downs))
    if can_group(x, gates):
        return grouped_experts(x, counts, gates, ups, downs, experts.act)
    return _one_by_one(x, counts, gates, ups, downs, experts.act)  # type: ignore[no-any-return]


# Not compiled: which experts have rows differs from step to step, and every pattern would be another graph.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def _one_by_one(
    x: Tensor, counts: Tensor, gates: Tensor, ups: Tensor, downs: Tensor, act: Callable[[Tensor], Tensor]
) -> Tensor:
    # One unbind, not an index an expert: its backward writes one gradient, with zeros for experts that nobody visits.
    rows_of = torch.split(x, routing.visits(counts, len(x)))
    triples = zip(rows_of, gates.unbind(), ups.unbind(), downs.unbind(), strict=True)
    used = [
        functional.linear(act(functional.linear(rows, gate)) * functional.linear(rows, up), down)
        for i, (rows, gate, up, down) in enumerate(triples)
        if len(rows) or (i == 0 and not len(x))  # so that the weights join the graph where no row came at all
    ]
    return torch.cat(used)


def local_exchange(x: Tensor, expert_of: Tensor, weights: Tensor, experts: Experts) -> Tensor:
    """Σ over a token's k experts of weight · expert(x), where this process holds all experts.

    x [n, hidden], expert_of [n, k], weights [n, k] → [n, hidden].
    """
    n, k = expert_of.shape
    visits = expert_of.flatten()
    order = visits.argsort(stable=True)
    counts = torch.bincount(visits, minlength=experts.gate.shape[0])
    out = experts(spread_rows(x, order, k), counts)
    back = spread_rows(out, inverse(order), 1).view(n, k, x.shape[-1])
    return torch.einsum("nk,nkh->nh", weights, back)
