"""States: gradients that are summed and parameters that are gathered, as `modes.replicated` and `modes.sharded` do it.

| layout | sent a step by a rank of n, P parameters of b bytes | source |
| --- | --- | --- |
| DDP | all-reduce 2(n-1)/n · P b, once | arXiv:2006.15704 section 3.2 |
| ZeRO-1 | all-gather and reduce-scatter (n-1)/n · P b, once each | arXiv:1910.02054 section 7.1 |
| ZeRO-2 | all-gather once; reduce-scatter every micro-batch, in a pipeline once | the same; torch's pipelining |
| ZeRO-3 | all-gather in forward and again in backward, reduce-scatter as ZeRO-2 | section 7.2; arXiv:2304.11277 |
| replicas of shards | all-reduce of P/n over the replicas, once | arXiv:2304.11277 section 3.2 |

FSDP2 gathers block by block; what lies outside the blocks is one more unit, which stays gathered from forward to
backward. It pads dim 0 of each parameter to a multiple of the ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from meshwright.cost.wire.event import Event
from meshwright.cost.wire.gathers import Gathers
from meshwright.cost.wire.local import KV_COPIES, Local, Stage, kv_copies, own_numels
from meshwright.cost.wire.options import WireOptions
from meshwright.cost.wire.place import Place, axis_ranks, expert_data_ranks, expert_shard_ranks, shard_ranks
from meshwright.spec.layout import Layout
from meshwright.spec.model import Model


def replicated_gradients(stages: Sequence[Stage], place: Place, o: WireOptions) -> Iterator[Event]:
    """Without sharding: DDP's buckets (modules with their padding), or in a pipeline sums after the last backward."""
    layout = place.layout
    dense = [p for stage in stages for p in stage.parameters if not p.expert]
    experts = [p for stage in stages for p in stage.parameters if p.expert]
    data = len(axis_ranks(layout, "data"))
    if layout.stages == 1:
        size = o.kept * sum(p.numel for p in dense)
        yield Event("data", "all-reduce", data, size, counted=False)
    else:
        yield from _bucketed("data", data, own_numels(dense, place), o)
    yield from _bucketed("expert_data", expert_data_ranks(layout), own_numels(experts, place), o)


def partial_gradients(model: Model, stages: Sequence[Stage], place: Place, o: WireOptions) -> Iterator[Event]:
    """Gradients of which each tensor rank has a part: of its own tokens, or of the heads that it copies."""
    layout = place.layout
    parameters = [p for stage in stages for p in stage.parameters]
    for axis, ranks in (("tensor", layout.tensor), (KV_COPIES, kv_copies(model, layout))):
        yield from _bucketed(axis, ranks, own_numels([p for p in parameters if p.partial == axis], place), o)


def tied_gradient(model: Model, stages: Sequence[Stage], place: Place, o: WireOptions) -> Iterator[Event]:
    """The gradient of a tied table, summed between the ranks of the first and the last stage."""
    layout = place.layout
    held = {stage.index for stage in stages} & {0, layout.stages - 1}
    if not model.tied_embeddings or layout.stages == 1 or len(held) != 1:
        return
    table = [p for stage in stages for p in stage.parameters if p.name == "embed.tokens.weight"]
    yield Event("pipeline", "all-reduce", 2, o.kept * sum(own_numels(table, place)))


def sharded(
    stages: Sequence[Stage], place: Place, micro_batches: int, o: WireOptions, gathers: Gathers
) -> Iterator[Event]:
    """FSDP2: parameters gathered, gradients scattered, and summed over replicas."""
    layout = place.layout
    often = layout.zero_stage >= 2 and layout.stages == 1
    for stage in stages:
        for unit, axis, ranks, replicas in _units(stage, layout):
            piece = sum(p.piece(ranks) for p in unit)
            kind = "expert" if axis == "expert_shard" else "block" if unit[0].place.startswith("layers.") else "root"
            yield Event(axis, "all-gather", ranks, ranks * piece * o.compute, gathers(stage.index, kind))
            yield Event(axis, "reduce-scatter", ranks, ranks * piece * o.reduce, micro_batches if often else 1)
            across = "expert_replicate" if kind == "expert" else "replicate"
            yield Event(across, "all-reduce", replicas, piece * o.reduce)


def _units(stage: Stage, layout: Layout) -> Iterator[tuple[list[Local], str, int, int]]:
    """Parameters that are gathered as one, their axis, its ranks and its replicas."""
    places = ["", *(f"layers.{i}" for i in stage.layers)]
    for name in places:
        if unit := stage.unit(name, expert=False):
            yield unit, "shard", shard_ranks(layout), layout.replicate
        if unit := stage.unit(name, expert=True):
            ranks = expert_shard_ranks(layout)
            yield unit, "expert_shard", ranks, expert_data_ranks(layout) // ranks


def _bucketed(axis: str, ranks: int, numels: Iterable[int], o: WireOptions) -> Iterator[Event]:
    """All-reduces of runs of gradients of at most a bucket's bytes, or of a single bigger one."""
    size, filled = 0, False
    for numel in numels:
        length = numel * o.kept
        if filled and size + length > o.bucket:
            yield Event(axis, "all-reduce", ranks, size)
            size = 0
        size, filled = size + length, True
    yield Event(axis, "all-reduce", ranks, size)
