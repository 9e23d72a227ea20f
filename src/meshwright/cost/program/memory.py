"""Memory of one rank of our own program: its peak, the instant, and the parts, by walking through what the rank does.

States: ZeRO, arXiv:1910.02054 figure 1. Activations: `kept`, as many at once as the schedule leaves waiting. The rest
is what backward makes and drops (`passes`) and what FSDP2 gathers (`weights`).
"""

from __future__ import annotations

from meshwright.cost.program import kept, passes
from meshwright.cost.program.shape import Shape
from meshwright.cost.program.walk import RankPeak, StageBytes, Walk
from meshwright.cost.program.weights import gathered_of, weights_of
from meshwright.cost.schedules import placement
from meshwright.cost.wire.held import held
from meshwright.cost.wire.local import Stage, stages_of
from meshwright.cost.wire.place import Place
from meshwright.spec.layout import Layout
from meshwright.spec.model import Model
from meshwright.spec.workload import Workload


def rank_peak(
    model: Model, workload: Workload, layout: Layout, rank: int, micro_batches: int, optimizer: str, *, gpu: bool
) -> RankPeak:
    """The peak of a step that is not the first. Raises ModelError for a model that the Decoder does not compute."""
    s, place = Shape.of(model, workload, layout, gpu=gpu), Place(layout, rank)
    stages = {one.index: _stage(s, one, micro_batches) for one in stages_of(model, place)}
    states = {name: size or 0.0 for name, size in held(model, layout, rank, optimizer).items()}
    return Walk(s, place, stages, states, micro_batches).peak()


def rank_kept(model: Model, workload: Workload, layout: Layout, rank: int, *, gpu: bool) -> float:
    """Bytes that one micro-batch's forward leaves for backward in all stages of a rank."""
    s, place = Shape.of(model, workload, layout, gpu=gpu), Place(layout, rank)
    stages = [_stage(s, one, 1) for one in stages_of(model, place)]
    total = sum(one.activations for one in stages)
    if layout.stages == 1:
        return total + stages[0].loss
    where = placement(layout.schedule, layout.pipeline, layout.virtual_stages)
    for one in stages:
        index = one.stage.index
        # What a stage receives lies in a buffer; what it gives is held until its backward, but for logits under 1F1B,
        # whose backward comes next.
        if index and where[index - 1] != where[index]:
            total -= s.hidden
        if index + 1 < layout.stages:
            total += s.hidden if where[index + 1] != where[index] else 0
        elif layout.schedule != "1f1b":
            total += passes.logits_held(s)
    return total


def _stage(s: Shape, stage: Stage, micro_batches: int) -> StageBytes:
    layers = [kept.layer_kept(s, layer) for layer in stage.layers]
    first, last = stage.index == 0, stage.index == s.layout.stages - 1
    inner = sum(one.under(s.layout.recompute) for one in layers) + kept.tables_kept(s)
    inner += kept.embedding_kept(s) if first else 0
    inner += kept.head_kept(s) if last else 0
    weights = weights_of(stage, s.layout.stages)
    widths = [_width(s, layer) for layer in stage.layers]
    ends = passes.logits_held(s) + s.entered if last else 0
    return StageBytes(
        stage,
        weights,
        gathered_of(s, weights, adds_up=micro_batches > 1),
        activations=inner,
        loss=kept.loss_kept(s) + passes.logits_held(s) if last else 0.0,
        layers=tuple(one.under(s.layout.recompute) for one in layers),
        again=max((one.whole - one.under(s.layout.recompute) for one in layers), default=0),
        block=max(passes.attention_backward(s), *(passes.block_backward(s, width) for width in widths), 0),
        split=sum(passes.split_waits(s, width) for width in widths) + ends,
    )


def _width(s: Shape, layer: int) -> int:
    """Inner width a token of a layer's feed-forward part on one rank."""
    m, e = s.model, s.model.experts
    if e is None or not m.is_moe_layer(layer):
        return m.ffn_hidden // s.layout.tensor
    return (e.ffn_hidden * e.per_token + e.shared_ffn_hidden) // s.layout.tensor
