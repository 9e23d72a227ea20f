"""One rank's rehearsal: the job's own step on fake tensors, watched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from meshwright.modes.parts import Part
from meshwright.rehearse.marks import GRADIENTS, OPTIMIZER, PARAMETERS, mark
from meshwright.rehearse.result import RankRehearsal
from meshwright.rehearse.room import room_for
from meshwright.rehearse.scene import DEVICE, scene, unset
from meshwright.rehearse.shortened import run_of
from meshwright.train.batch import Batch
from meshwright.train.config.job import Job
from meshwright.train.optim.optimizer import make_optimizer
from meshwright.train.optim.scaler import LossScaler
from meshwright.train.program import architecture_of, step_of
from meshwright.train.update import update


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
    One process can be one rank only: see `session`. Raises LayoutError where the program itself refuses.
    """
    config = job.config
    gpu = job.for_gpus
    run = run_of(job.layout, job.micro_batches)
    states: dict[str, float] = {}
    with scene(job.layout, rank, gpu=gpu, imbalance=imbalance) as here, room_for(job.micro_batches - run):
        architecture = architecture_of(job)
        step = step_of(job, architecture, here.mesh, unset)
        here.meet(step.parallel)
        optimizer = make_optimizer(step.parallel.parts, config.optimizer, host="optimizer" in job.layout.offload)
        scaler = _AllGood(config.train.loss_scale) if config.train.precision == "fp16" else None

        def look(parts: Sequence[Part]) -> None:
            held = [gradient for part in parts if (gradient := part.gradient) is not None]
            mark(here.ledger, held, GRADIENTS)
            states[GRADIENTS] = here.bytes(held)

        def once() -> None:
            micro_batches = [_batch(job) for _ in range(job.micro_batches)]  # all are held until the step ends
            update(
                step, optimizer, micro_batches[:run], target_tokens=job.workload.tokens,
                max_norm=config.train.max_norm or None, scaler=scaler, look=look,
            )  # fmt: skip
            del micro_batches
            for state in optimizer.state_parts():
                mark(here.ledger, [state.tensor], OPTIMIZER)
                if here.ledger.on_host(state.part.data):
                    here.ledger.put_on_host(state.tensor)  # the counters, too, which are made of nothing that is there

        here.steps(steps, once, tell)
        states[PARAMETERS] = here.bytes([part.data for part in step.parallel.parts])
        states[OPTIMIZER] = here.bytes([state.tensor for state in optimizer.state_parts()])
        found = here.found(step.parallel, steps, states, run=run, micro_batches=job.micro_batches, history=history)
    return replace(
        found, windows=architecture.windows, activation=architecture.activation,
        balanced=bool(architecture.balance_coefficient),
    )  # fmt: skip


def _batch(job: Job) -> Batch:
    """A micro-batch of one rank: the tokens of its context rank, without numbers."""
    shape = job.layout.micro_batch, job.workload.seq_len // job.layout.context
    tokens, targets, positions = (torch.empty(shape, dtype=torch.int64, device=DEVICE) for _ in range(3))
    return Batch(tokens, targets, positions)
