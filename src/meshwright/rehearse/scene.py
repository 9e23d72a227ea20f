"""Scene: where a rank is rehearsed: its world, its mesh, tensors without numbers, and all that watches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode

from meshwright.modes import routing
from meshwright.modes.accelerator import stand_in
from meshwright.modes.collective_ops import Operator
from meshwright.modes.mesh import Mesh, make_mesh
from meshwright.modes.parallelize import Parallel
from meshwright.modes.record import Recorder
from meshwright.rehearse.buckets import order_buckets
from meshwright.rehearse.ledger import Ledger
from meshwright.rehearse.marks import BUFFERS, PARAMETERS, mark, named_sharding
from meshwright.rehearse.places import Phase, Places
from meshwright.rehearse.result import RankRehearsal
from meshwright.rehearse.summed import summed
from meshwright.rehearse.votes import all_know_their_shapes
from meshwright.rehearse.whole import whole_traffic
from meshwright.rehearse.world import fake_world
from meshwright.spec.layout import Layout

DEVICE = torch.device("cpu")
"""Of all tensors: they stand for such on a GPU where the cluster has GPUs."""


@dataclass
class Scene:
    """What a rehearsal works with."""

    mesh: Mesh
    places: Places
    ledger: Ledger
    record: PhasedRecorder
    began: float
    """`time.perf_counter` of its start."""

    def meet(self, parallel: Parallel) -> None:
        """Know the modules and parameters of this rank's share of a model."""
        self.places.name(parallel.stages)
        order_buckets(parallel.runners, self.ledger)
        mark(self.ledger, [part.parameter for part in parallel.parts], PARAMETERS)
        for module in parallel.stages:
            mark(self.ledger, list(module.buffers()), BUFFERS)

    def bytes(self, tensors: list[torch.Tensor]) -> float:
        """Bytes of the memory of these, each piece once."""
        blocks = [self.ledger.block_of(tensor) for tensor in tensors]
        return float(sum(block.bytes for block in {id(block): block for block in blocks if block}.values()))

    def steps(self, steps: int, once: Callable[[], object], tell: Callable[[int], None] | None = None) -> None:
        """Do `once` so many times; `tell` is called before each; the last one's collectives are recorded."""
        for number in range(1, steps + 1):
            if tell is not None:
                tell(number)
            self.ledger.step = number
            with self.record if number == steps else nullcontext():
                once()

    def found(
        self, parallel: Parallel, steps: int, states: Mapping[str, float], *, run: int = 1, micro_batches: int = 1,
        history: bool = False,
    ) -> RankRehearsal:  # fmt: skip
        """The Rehearsal after `steps` steps, of whose `micro_batches` so many were `run`."""
        account, entries = self.ledger.account, self.record.entries
        return replace(
            summed(account, steps, run, micro_batches, history=history),
            rank=dist.get_rank(),
            pipeline_rank=self.mesh.index("pipeline"),
            stages=tuple(parallel.indices),
            states=states,
            traffic=whole_traffic(entries, self.record.phases, run, micro_batches),
            collectives=tuple(f"{e.axis} {e.collective} {e.bytes}" for e in entries if e.ranks > 1),
            micro_batches=micro_batches,
            micro_batches_run=run,
            seconds=time.perf_counter() - self.began,
        )


class PhasedRecorder(Recorder):
    """Notes, too, in which phase each collective was."""

    def __init__(self, mesh: Mesh, places: Places) -> None:
        super().__init__(mesh)
        self.phases: list[Phase] = []
        self._places = places

    def _note(self, operator: Operator, arguments: tuple[Any, ...]) -> None:
        super()._note(operator, arguments)
        self.phases.append(self._places.phase)


@contextmanager
def scene(layout: Layout, rank: int, *, gpu: bool, imbalance: float = 1.0, infer: bool = False) -> Iterator[Scene]:
    """Be `rank` of `layout`. `gpu`: tensors stand for such on a GPU. `infer`: guess phases that nothing names."""
    began = time.perf_counter()
    with ExitStack() as stack:
        stack.enter_context(fake_world(rank, layout.devices))
        mesh = make_mesh(layout, DEVICE)
        places = stack.enter_context(Places(infer=infer))
        stack.enter_context(stand_in(gpu))
        if layout.stages > 1:
            stack.enter_context(all_know_their_shapes())
        stack.enter_context(routing.assume(imbalance))
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        ledger = stack.enter_context(Ledger(places))
        stack.enter_context(named_sharding(ledger))
        yield Scene(mesh, places, ledger, PhasedRecorder(mesh, places), began)


def unset(name: str, cut: Any, tensor: torch.Tensor) -> None:
    """Gives a parameter no numbers: there are none."""
