"""One rank's rehearsal: the job's own step on fake tensors, watched."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from meshwright.modes import routing
from meshwright.modes.accelerator import stand_in
from meshwright.modes.collective_ops import Operator
from meshwright.modes.mesh import Mesh, make_mesh
from meshwright.modes.parts import Part
from meshwright.modes.record import Recorder
from meshwright.rehearse.buckets import order_buckets
from meshwright.rehearse.ledger import Account, Event, Ledger
from meshwright.rehearse.marks import GRADIENTS, OPTIMIZER, PARAMETERS, mark, named_sharding
from meshwright.rehearse.parts import ORDER, alive, kept, levels, part_of
from meshwright.rehearse.places import Phase, Places
from meshwright.rehearse.result import Instant, RankRehearsal
from meshwright.rehearse.shortened import repeats, run_of, whole_traffic
from meshwright.rehearse.votes import all_know_their_shapes
from meshwright.rehearse.world import fake_world
from meshwright.train.batch import Batch
from meshwright.train.config.devices import is_accelerator
from meshwright.train.config.job import Job
from meshwright.train.loop.setup import architecture_of, step_of
from meshwright.train.optim.optimizer import make_optimizer
from meshwright.train.optim.scaler import LossScaler
from meshwright.train.update import update

TIMELINE = 4000
"""Points of a timeline at most."""


class _AllGood(LossScaler):
    """A loss scale in a step without numbers: nothing overflows."""

    def good(self, norm: torch.Tensor) -> bool:
        return True


def rehearse_rank(
    job: Job,
    rank: int,
    *,
    steps: int = 2,
    imbalance: float = 1.0,
    history: bool = False,
    tell: Callable[[int], None] | None = None,
) -> RankRehearsal:
    """What `rank` of `job` does in `steps` steps; the first one allocates optimizer states.

    `imbalance`: rows that this rank's experts get, relative to balanced routing. `tell` is called before each step.
    Raises LayoutError where the program itself refuses.
    """
    gpu = job.cluster is not None and is_accelerator(job.cluster.device.name)
    began = time.perf_counter()
    device = torch.device("cpu")
    with ExitStack() as stack:
        stack.enter_context(fake_world(rank, job.layout.devices))
        mesh = make_mesh(job.layout, device)
        places = stack.enter_context(Places())
        stack.enter_context(stand_in(gpu))
        if job.layout.stages > 1:
            stack.enter_context(all_know_their_shapes())
        stack.enter_context(routing.assume(imbalance))
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        ledger = stack.enter_context(Ledger(places))
        stack.enter_context(named_sharding(ledger))
        step = step_of(job, architecture_of(job), mesh, lambda name, cut, tensor: None)
        places.name(step.parallel.stages)
        order_buckets(step.parallel.runners, ledger)
        mark(ledger, [part.parameter for part in step.parallel.parts], PARAMETERS)
        for module in step.parallel.stages:
            mark(ledger, list(module.buffers()), "buffers")
        config = job.config
        optimizer = make_optimizer(step.parallel.parts, config.optimizer, host=False)
        scaler = _AllGood(config.train.loss_scale) if config.train.precision == "fp16" else None
        states: dict[str, float] = {}

        def look(parts: Sequence[Part]) -> None:
            held = [gradient for part in parts if (gradient := part.gradient) is not None]
            mark(ledger, held, GRADIENTS)
            states[GRADIENTS] = _bytes(ledger, held)

        record, run = _Recorder(mesh, places), run_of(job.layout, job.micro_batches)
        for number in range(steps):
            if tell is not None:
                tell(number)
            ledger.step = number + 1
            batches = [_batch(job, device) for _ in range(run)]
            with record if number == steps - 1 else _nothing():
                update(
                    step, optimizer, batches, target_tokens=job.workload.tokens,
                    max_norm=config.train.max_norm or None, scaler=scaler, look=look,
                )  # fmt: skip
            del batches
            mark(ledger, [state.tensor for state in optimizer.state_parts()], OPTIMIZER)
        states[PARAMETERS] = _bytes(ledger, [part.data for part in step.parallel.parts])
        states[OPTIMIZER] = _bytes(ledger, [state.tensor for state in optimizer.state_parts()])
        found = _rehearsal(ledger.account, steps, run, job.micro_batches)
        return replace(
            found,
            rank=rank,
            pipeline_rank=mesh.index("pipeline"),
            stages=tuple(step.parallel.indices),
            states=states,
            traffic=whole_traffic(record.entries, record.phases, run, job.micro_batches),
            micro_batches=job.micro_batches,
            micro_batches_run=run,
            collectives=tuple(f"{e.axis} {e.collective} {e.bytes}" for e in record.entries if e.ranks > 1),
            history=_history(ledger.account) if history else (),
            seconds=time.perf_counter() - began,
        )


class _Recorder(Recorder):
    """Notes, too, in which phase each collective was."""

    def __init__(self, mesh: Mesh, places: Places) -> None:
        super().__init__(mesh)
        self.phases: list[Phase] = []
        self._places = places

    def _note(self, operator: Operator, arguments: tuple[Any, ...]) -> None:
        super()._note(operator, arguments)
        self.phases.append(self._places.phase)


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def _batch(job: Job, device: torch.device) -> Batch:
    """A micro-batch of one rank: the tokens of its context rank, without numbers."""
    shape = job.layout.micro_batch, job.workload.seq_len // job.layout.context
    tokens, targets, positions = (torch.empty(shape, dtype=torch.int64, device=device) for _ in range(3))
    return Batch(tokens, targets, positions)


def _bytes(ledger: Ledger, tensors: list[torch.Tensor]) -> float:
    """Bytes of the blocks of these, each once."""
    blocks = {
        id(block): block for tensor in tensors if (block := ledger.block_of(getattr(tensor, "_local_tensor", tensor)))
    }
    return float(sum(block.bytes for block in blocks.values()))


def _rehearsal(account: Account, steps: int, run: int, micro_batches: int) -> RankRehearsal:
    """The numbers of an Account."""
    heights = levels(account)
    top = max(range(len(heights)), key=heights.__getitem__)
    event = account.events[top]
    parts = dict.fromkeys(ORDER, 0.0)
    waiting: dict[str, float] = {}
    for block in alive(account, top):
        part = part_of(block)
        parts[part] += block.bytes
        if kept(block):
            waiting[block.module] = waiting.get(block.module, 0.0) + block.bytes
    flops: dict[str, dict[str, float]] = {}
    by_module: dict[str, float] = {}
    for (number, phase, module, kind), work in account.work.items():
        if number == steps:
            done = work.flops * repeats(phase, run, micro_batches)
            of_phase = flops.setdefault(phase.name, {})
            of_phase[kind] = of_phase.get(kind, 0.0) + done
            by_module[module] = by_module.get(module, 0.0) + done
    peaks = [0.0] * (steps + 1)
    for event_, height in zip(account.events, heights, strict=True):
        peaks[event_.step] = max(peaks[event_.step], height)
    return RankRehearsal(
        rank=0,
        pipeline_rank=0,
        stages=(0,),
        peak_bytes=heights[top],
        peak=_instant(event),
        parts={name: size for name, size in parts.items() if size},
        activations=dict(sorted(waiting.items(), key=lambda item: -item[1])),
        states={},
        flops=flops,
        module_flops=by_module,
        traffic=(),
        collectives=(),
        kept=_kept(account, steps),
        timeline=_timeline(account, heights),
        operations=account.operations,
        seconds=0.0,
        step_peaks=tuple(peaks[1:]),
    )


def _history(account: Account) -> tuple[tuple[int, int, str], ...]:
    """Every event, with the part that its block is."""
    told = (f"{part_of(account.blocks[event.block])}: {_instant(event)}" for event in account.events)
    return tuple((event.block, event.bytes, text) for event, text in zip(account.events, told, strict=True))


def _instant(event: Event) -> Instant:
    return Instant(event.step, str(event.phase), event.module)


def _kept(account: Account, steps: int) -> dict[str, float]:
    """Bytes that the first micro-batch's forward of the last step keeps, by module."""
    found: dict[str, float] = {}
    for block in account.blocks:
        if block.step == steps and kept(block) and not block.phase.micro_batch:
            found[block.module] = found.get(block.module, 0.0) + block.bytes
    return found


def _timeline(account: Account, heights: list[float]) -> tuple[tuple[int, float, str], ...]:
    """Of runs of events the highest one, so many that a chart can show them."""
    each = max(len(heights) // TIMELINE, 1)
    points = []
    for start in range(0, len(heights), each):
        at = max(range(start, min(start + each, len(heights))), key=heights.__getitem__)
        event = account.events[at]
        points.append((at, heights[at], str(_instant(event))))
    return tuple(points)
