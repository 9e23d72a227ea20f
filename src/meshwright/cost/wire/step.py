"""Step: everything that one rank sends in one optimizer step."""

from __future__ import annotations

from collections.abc import Iterator

from meshwright.cost.schedules import placement
from meshwright.cost.wire.blocks import block
from meshwright.cost.wire.event import Event, rows, send
from meshwright.cost.wire.gathers import gathers
from meshwright.cost.wire.local import Stage, stages_of
from meshwright.cost.wire.options import WireOptions
from meshwright.cost.wire.place import Place
from meshwright.cost.wire.regions import Tokens, embedding, head
from meshwright.cost.wire.states import partial_gradients, replicated_gradients, sharded, tied_gradient
from meshwright.cost.wire_row import WireRow
from meshwright.spec.errors import LayoutError, WorkloadError
from meshwright.spec.layout import Layout
from meshwright.spec.model import Model
from meshwright.spec.workload import Workload


def wire(
    model: Model, workload: Workload, layout: Layout, rank: int, options: WireOptions | None = None
) -> tuple[WireRow, ...]:
    """What `rank` sends in one step of `train` under `layout`, from the second step on (the first one also connects).

    Of the workload, sequence length and global batch count. Axes are those of `modes.mesh`; what goes to the first or
    the last stage is on `pipeline`. Left out: what optimizers that need whole matrices (LAMB, Muon) exchange, and what
    is outside of a step (logging, checkpoints).

    Raises ModelError for a model that the Decoder does not compute, LayoutError where layers or samples do not divide,
    WorkloadError for LoRA or frozen layers, which the runtime does not train.
    """
    if workload.tuning.kind != "full":
        raise WorkloadError(f"The runtime trains all parameters; tuning is {workload.tuning.kind}.", legal=("full",))
    if not 0 <= rank < layout.devices:
        raise LayoutError(f"{layout} has no rank {rank}.", legal=(f"0 to {layout.devices - 1}",))
    micro_batches, rest = divmod(workload.global_batch, layout.data * layout.micro_batch)
    if rest or not micro_batches:
        raise LayoutError(
            f"{workload.global_batch} sequences do not divide over {layout.data} data ranks and micro-batches of "
            f"{layout.micro_batch}."
        )
    o = options or WireOptions.of(workload, layout.zero_stage)
    place = Place(layout, rank)
    stages = stages_of(model, place)
    return rows(
        [
            *_passes(model, workload, place, stages, micro_batches, o),
            *_messages(model, workload, place, stages, micro_batches, o),
            *_gradients(model, place, stages, micro_batches, o),
            Event("world", "all-reduce", layout.devices, o.loss),  # the gradient norm
        ]
    )


def _passes(
    model: Model, workload: Workload, place: Place, stages: list[Stage], micro_batches: int, o: WireOptions
) -> Iterator[Event]:
    """What forward and backward send inside the stages."""
    layout = place.layout
    n = Tokens.of(model, workload, layout)
    for stage in stages:
        if stage.index == 0:
            yield from embedding(layout, n, o).times(micro_batches)
        for layer in stage.layers:
            yield from block(model, layout, n, o, layer).times(micro_batches)
        if stage.index == layout.stages - 1:
            yield from head(layout, n, o).times(micro_batches)


def _messages(
    model: Model, workload: Workload, place: Place, stages: list[Stage], micro_batches: int, o: WireOptions
) -> Iterator[Event]:
    """Hidden states to the next stage and their gradients to the previous one (arXiv:2104.04473 section 2.2), where
    these lie on another rank."""
    layout = place.layout
    if layout.stages == 1:
        return
    n = Tokens.of(model, workload, layout)
    size = n.own * n.hidden * o.activation
    places = placement(layout.schedule, layout.pipeline, layout.virtual_stages)
    for stage in stages:
        for neighbour in (stage.index - 1, stage.index + 1):
            if 0 <= neighbour < layout.stages and places[neighbour] != place.pipeline:
                yield send("pipeline", size, micro_batches)


def _gradients(model: Model, place: Place, stages: list[Stage], micro_batches: int, o: WireOptions) -> Iterator[Event]:
    """What sums gradients and gathers parameters."""
    if place.layout.zero_stage:
        yield from sharded(stages, place, micro_batches, o, gathers(place, micro_batches))
    else:
        yield from replicated_gradients(stages, place, o)
    yield from partial_gradients(model, stages, place, o)
    yield from tied_gradient(model, stages, place, o)
