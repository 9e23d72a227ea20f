"""Pipeline parallelism in closed form: bubble, makespan and activations in flight, over numbers or columns.

A schedule is its code, the index in `spec.layout.SCHEDULES`. Every function takes ints, floats or numpy arrays
that broadcast. `simulate` prices the same things from the schedule's table, action by action.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from meshwright.spec.layout import SCHEDULES

Number = Any
"""An int, a float, or a numpy array of either."""

GPIPE, ONE_F_ONE_B, INTERLEAVED, LOOPED_BFS, INTERLEAVED_ZERO_BUBBLE, ZBV, DUALPIPE_V = range(len(SCHEDULES))


@dataclass(frozen=True, slots=True)
class Passes:
    """Seconds of one micro-batch's three passes; recomputation belongs to `input_gradient`."""

    forward: Number = 0.0
    input_gradient: Number = 0.0
    weight_gradient: Number = 0.0

    @property
    def total(self) -> Number:
        """Seconds of all three."""
        return self.forward + self.input_gradient + self.weight_gradient


def bubble_fraction(
    schedule: Number,
    pipeline: Number,
    micro_batches: Number,
    virtual_stages: Number = 1,
    passes: Passes = Passes(1.0, 1.0, 1.0),
) -> Number:
    """Idle share of the pipeline's device seconds, with even stages and free sends.

    (p-1)/(m+p-1) for gpipe and 1f1b (arXiv:1811.06965 section 2.3), (p-1)/(v*m+p-1) for interleaved schedules
    (arXiv:2104.04473 section 2.2).
    """
    work = micro_batches * passes.total
    return 1.0 - work / pipeline_seconds(schedule, pipeline, micro_batches, virtual_stages, passes)


def pipeline_seconds(
    schedule: Number,
    pipeline: Number,
    micro_batches: Number,
    virtual_stages: Number,
    rank: Passes,
    p2p_seconds: Number = 0.0,
    first: Passes = Passes(),
    last: Passes = Passes(),
) -> Number:
    """Seconds from the first forward to the last backward of one step.

    `rank` holds one micro-batch's seconds in *all* layers of an ordinary pipeline rank (its `virtual_stages`
    stages together); `first` and `last` what the first stage (embedding) and the last stage (head, loss) cost
    on top, or, negative, less. `p2p_seconds` is the latency of one activation sent between neighbours.
    """
    loops = np.where(np.asarray(schedule) <= ONE_F_ONE_B, 1, virtual_stages)
    slowest = rank.total + np.where(pipeline > 1, np.maximum(first.total, last.total), first.total + last.total)
    return micro_batches * slowest + (pipeline - 1) * (rank.total / loops + 2 * p2p_seconds)


def in_flight(
    schedule: Number, pipeline: Number, micro_batches: Number, virtual_stages: Number, rank: Number
) -> Number:
    """Peak number of micro-batches whose activations pipeline rank `rank` holds, in units of all its layers.

    gpipe m; 1f1b min(m, p - r) (arXiv:1806.03377); interleaved min(v*m, 2(p-r-1) + (v-1)p + 1) / v
    (arXiv:2104.04473; Megatron-LM and PyTorch warm-up counts).
    """
    p, m, v, r = pipeline, micro_batches, virtual_stages, rank
    interleaved = np.minimum(v * m, 2 * (p - r - 1) + (v - 1) * p + 1) / v
    code = np.asarray(schedule)
    return np.select(
        [code == GPIPE, code == ONE_F_ONE_B, code == LOOPED_BFS],
        [m * np.ones_like(interleaved), np.minimum(m, p - r), m * np.ones_like(interleaved)],
        interleaved,
    )


def weight_versions(pipeline: Number, rank: Number) -> Number:
    """Copies of its weights that rank `rank` keeps in PipeDream's asynchronous 1F1B: p - r.

    One a micro-batch in flight, so that a backward meets its forward's weights (arXiv:1806.03377 section 3.3).
    """
    return pipeline - rank
