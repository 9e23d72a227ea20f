"""What a rank of one bench run does: set up as `train` does, warm up, time, trace; and leave its numbers in a file."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

from meshwright.bench.case import Case, rank_path, read_case, trace_path, write_json
from meshwright.bench.clock import durations
from meshwright.bench.energy import millijoules
from meshwright.bench.meter import Meter
from meshwright.bench.traced import summary
from meshwright.modes.annotate import NamedCollectives
from meshwright.modes.ranges import named, show_nvtx
from meshwright.modes.record import Recorder, summarize
from meshwright.train.config.job import Job
from meshwright.train.config.read import read_config
from meshwright.train.config.resolve import resolve
from meshwright.train.launch.environment import read_place
from meshwright.train.launch.error_files import record_errors
from meshwright.train.launch.orphans import PARENT, die_with_parent
from meshwright.train.launch.process_group import device_of, finalize, initialize
from meshwright.train.launch.recorder import record_collectives
from meshwright.train.loop.setup import Setup, set_up
from meshwright.train.update import update

MEMORY_STEPS = 2
"""The first allocates optimizer states; the second is like all others."""
MOST_SKIPPED = 24
"""fp16: so many halvings of the loss scale, and then it is the model that overflows."""


@dataclass
class Runner:
    """Steps of one layout on this rank, as `train` does them."""

    setup: Setup
    values: list[torch.Tensor] = field(default_factory=list)
    """Loss and gradient norm of each step, still on the device."""
    skipped: int = 0
    """fp16: steps whose gradients overflowed, so that no parameter moved."""

    def step(self) -> None:
        """One step; its loss is the same number on every rank, and on a CPU waited for."""
        setup, config = self.setup, self.setup.job.config
        with named("data"):
            batches = setup.own(next(setup.loader))
            targets = setup.target_tokens(setup.loader.counted)
        done = update(
            setup.step, setup.optimizer, batches, target_tokens=targets, max_norm=config.train.max_norm or None,
            scaler=setup.scaler,
        )  # fmt: skip
        self.skipped += done.skipped
        share = done.share if setup.step.reports else torch.zeros_like(done.share)
        pair = torch.stack((share.double(), done.norm.to(share.device, torch.float64)))
        dist.all_reduce(pair[:1])
        self.values.append(pair)


def measure(job: Job, device: torch.device, case: Case, folder: Path) -> dict[str, Any]:
    """Measure `job` as one of its ranks, in the process group that is there; returns this rank's numbers."""
    with ExitStack() as stack:
        with Meter(device) as meter:
            setup = set_up(job, device)
            runner = Runner(setup)
            stack.enter_context(setup.loader)
            for _ in range(MEMORY_STEPS):
                runner.step()
            while runner.skipped == len(runner.values) < MOST_SKIPPED:  # until the optimizer has made its states
                runner.step()
        states = state_bytes(setup)
        for _ in range(max(case.warm_up - MEMORY_STEPS, 0)):
            runner.step()
        millijoules(device)  # wakes NVML
        dist.barrier()
        before, skipped = millijoules(device), runner.skipped
        seconds = durations(runner.step, case.steps, device).tolist()
        skipped = runner.skipped - skipped
        after = millijoules(device)
        with Recorder(setup.mesh) as record:
            runner.step()
        traced = _trace(runner, case.traced, trace_path(folder, dist.get_rank())) if case.traced else None
    pairs = torch.stack(runner.values).tolist()
    return {
        "rank": dist.get_rank(),
        "node": job.here.place.node,
        "seconds": seconds,
        "skipped": skipped,
        "loss": [loss for loss, _ in pairs],
        "grad_norm": [norm for _, norm in pairs],
        "memory_bytes": meter.peak_bytes,
        "memory_kind": meter.kind,
        "states": states,
        "joules": None if before is None or after is None else (after - before) / 1e3 / case.steps,
        "traffic": [
            {"axis": row.axis, "collective": row.collective, "count": row.count, "bytes": row.bytes, "small": row.small}
            for row in summarize(record.entries)
        ],
        "pipeline_rank": setup.mesh.index("pipeline"),
        "stages": list(setup.step.parallel.indices),
        "traced": traced,
    }


def state_bytes(setup: Setup) -> dict[str, float]:
    """Bytes that this rank's device keeps from step to step: parameters and optimizer states."""
    device = setup.device.type
    parts = [part.data for part in setup.step.parallel.parts]
    states = [state.tensor for state in setup.optimizer.state_parts()]

    def held(tensors: list[torch.Tensor]) -> float:
        stores = {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in tensors}
        return float(sum(stores.values()))

    return {
        "parameters": held([tensor for tensor in parts if tensor.device.type == device]),
        "optimizer": held([tensor for tensor in states if tensor.device.type == device]),
    }


def _trace(runner: Runner, steps: int, path: Path) -> dict[str, Any]:
    """A trace of some steps, in `path`, and what it says."""
    device = runner.setup.device
    kinds = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
    show_nvtx(True)
    with profile(activities=kinds) as tracer, NamedCollectives(runner.setup.mesh):
        with named("sync"):
            dist.barrier()
        for _ in range(steps):
            with named("step"):
                runner.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
    show_nvtx(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    tracer.export_chrome_trace(str(path))
    return summary(path)


def run_case(case: Case, folder: str) -> dict[str, Any]:
    """Measure `case` in the ranks that are there, a process group and all; returns this rank's numbers."""
    job = resolve(read_config(None, case.flags))
    return measure(job, device_of(job.here.place, job.device), case, Path(folder))


def main(file: str) -> None:
    """Be a rank of the case in `file`, of ranks that have just started."""
    if PARENT in os.environ:
        die_with_parent(int(os.environ[PARENT]))
    folder, place = Path(file).parent, read_place()
    with record_errors(place.rank, folder):
        case = read_case(Path(file))
        launch = read_config(None, case.flags).launch
        record_collectives(folder, place.rank)
        initialize(
            place,
            device=launch.device,
            backend=launch.backend,
            timeout=launch.timeout_s,
            threads=launch.threads or None,
        )
        write_json(rank_path(folder, place.rank), run_case(case, str(folder)))
        dist.barrier()
        finalize()


if __name__ == "__main__":
    main(sys.argv[1])
