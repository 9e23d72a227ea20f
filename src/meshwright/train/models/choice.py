"""Choice: which experts a token visits, and with what weights."""

from __future__ import annotations

import torch
from torch import Tensor

from meshwright.train.models.architecture import Routing
from meshwright.train.models.unset import Linear


class Router(Linear):
    """Linear to one logit an expert. `correction` [experts] is added to scores for the choice alone; None: nothing is.

    It is a buffer of fp32 at least: no gradient reaches it, and training leaves it as it is.
    """

    correction: Tensor | None

    def __init__(
        self, hidden: int, experts: int, routing: Routing, device: torch.device | str, dtype: torch.dtype
    ) -> None:
        super().__init__(hidden, experts, False, device, dtype)
        wide = torch.promote_types(dtype, torch.float32)
        # Real zeros also where the parameters are on the meta device: nobody fills buffers.
        where = "cpu" if str(device) == "meta" else device
        self.register_buffer(
            "correction", torch.zeros(experts, dtype=wide, device=where) if routing.corrected else None
        )


def scores_of(logits: Tensor, routing: Routing) -> Tensor:
    """Scores [n, experts] in float32 at least."""
    wide = torch.promote_types(logits.dtype, torch.float32)
    return logits.softmax(-1, dtype=wide) if routing.scores == "softmax" else logits.to(wide).sigmoid()


def choose(scores: Tensor, correction: Tensor | None, per_token: int, routing: Routing) -> tuple[Tensor, Tensor]:
    """Each token's experts [n, k] and their scores [n, k], which carry the gradient.

    The experts with the largest corrected scores, of the best groups where there are several (DeepSeek-V2,
    arXiv:2405.04434 section 2.2.2; V3, arXiv:2412.19437 section 2.1.2).
    """
    if correction is None and routing.groups == 1:
        best, experts = scores.topk(per_token, dim=-1)
        return experts, best
    with torch.no_grad():
        wanted = scores if correction is None else scores + correction
        if routing.groups > 1:
            grouped = wanted.view(len(wanted), routing.groups, -1)
            quality = grouped.topk(routing.group_best, dim=-1).values.sum(-1)
            kept = quality.topk(routing.groups_kept, dim=-1).indices
            out = torch.ones_like(quality, dtype=torch.bool).scatter(1, kept, False)
            wanted = grouped.masked_fill(out.unsqueeze(-1), float("-inf")).view_as(wanted)
        experts = wanted.topk(per_token, dim=-1).indices
    return experts, scores.gather(1, experts)
