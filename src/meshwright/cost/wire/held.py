"""Held: bytes of parameters, gradients and optimizer states that one rank's device keeps, exactly (`modes`, `train`).

Parameters and gradients are fp32 (ZeRO, arXiv:1910.02054 figure 1, with the shards of PyTorch's FSDP2): without
sharding what the module holds, an uneven vocabulary padded; sharded, pieces that are padded along dim 0. Optimizer
states have the parameter's own numbers, without padding, and a step counter of 4 bytes for each parameter.
"""

from __future__ import annotations

from meshwright.cost.wire.local import own_numels, stages_of
from meshwright.cost.wire.place import Place, expert_shard_ranks, shard_ranks
from meshwright.spec.layout import Layout
from meshwright.spec.model import Model

KEPT = 4
"""Bytes of a number that is kept."""
MOMENTS = {"adamw": 2, "lamb": 2, "sgd": 1}
"""States of the size of the parameter (of SGD: its momentum)."""
COUNTER = {"adamw": 4, "lamb": 4, "sgd": 0}


def held(model: Model, layout: Layout, rank: int, optimizer: str) -> dict[str, float | None]:
    """parameters, gradients, optimizer: bytes; None: the formulas do not know this optimizer's states.

    Raises ModelError for a model that the Decoder does not compute.
    """
    place = Place(layout, rank)
    parameters = [p for stage in stages_of(model, place) for p in stage.parameters]
    own = own_numels(parameters, place)
    if layout.zero_stage:
        dense, spread = shard_ranks(layout), expert_shard_ranks(layout)
        kept = sum(p.piece(spread if p.expert else dense) for p in parameters) * KEPT
    else:
        kept = sum(p.numel for p in parameters) * KEPT
    states = None
    if optimizer in MOMENTS:
        counted = sum(1 for numel in own if numel)
        states = float(MOMENTS[optimizer] * KEPT * sum(own) + COUNTER[optimizer] * counted)
    return {"parameters": float(kept), "gradients": float(kept), "optimizer": states}
