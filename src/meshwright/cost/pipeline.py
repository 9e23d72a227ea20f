"""Pipeline parallelism in closed form: bubble, makespan and activations in flight, over numbers or columns.

A schedule is its code, the index in `spec.layout.SCHEDULES`. Every function takes ints, floats or numpy arrays
that broadcast. `simulate` prices the same things from the schedule's table, action by action.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from meshwright.cost.makespan import FORMULAS, Job, Number, Passes, one_rank, round_size
from meshwright.spec.layout import SCHEDULES

__all__ = [
    "Passes",
    "awaiting_weight",
    "bubble_fraction",
    "in_flight",
    "pipeline_seconds",
    "weight_versions",
]

INTERLEAVED_ZERO_BUBBLE = SCHEDULES.index("interleavedzerobubble")
NO_TIME = Passes(0.0, 0.0, 0.0)
EQUAL_PASSES = Passes(1.0, 1.0, 1.0)


def bubble_fraction(
    schedule: Number,
    pipeline: Number,
    micro_batches: Number,
    virtual_stages: Number = 1,
    passes: Passes = EQUAL_PASSES,
) -> Number:
    """Idle share of the pipeline's device seconds, with even stages and free sends.

    (p-1)/(m+p-1) for gpipe and 1f1b (arXiv:1811.06965 section 2.3), (p-1)/(v*m+p-1) for interleaved1f1b and loopedbfs
    (arXiv:2104.04473 section 2.2, arXiv:2211.05953). The zero-bubble schedules depend on the ratio of the three
    `passes`; with equal ones interleavedzerobubble and zbvzerobubble have (p-1)/(3*v*m+p-1) (arXiv:2401.10241).
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
    first: Passes = NO_TIME,
    last: Passes = NO_TIME,
) -> Number:
    """Seconds from the first forward to the last backward of one step.

    `rank` holds one micro-batch's seconds in *all* layers of an ordinary pipeline rank (its `virtual_stages`
    stages together); `first` and `last` what the first stage (embedding) and the last stage (head, loss) cost
    on top, or, negative, less. `p2p_seconds` is the latency of one activation sent between neighbours.

    Worst deviation from `simulate`, over p <= 16, micro-batch counts that PyTorch takes, and sends of up to 5 % of a
    rank's forward. Even stages: none under gpipe, 1f1b, interleaved1f1b and loopedbfs; 1.5 % under the zero-bubble
    schedules (interleavedzerobubble with m < p: 5 %). Uneven stages, the first within 10 % of a rank's seconds, the
    last from -10 % to +30 %: gpipe none, 1f1b 0.5 %, the others 8 % (2 % on average).
    """
    columns: list[Number] = [pipeline, micro_batches, virtual_stages, p2p_seconds]
    for passes in (rank, first, last):
        columns += (passes.forward, passes.input_gradient, passes.weight_gradient)

    def priced(
        formula: Callable[[Job], Number], p: Number, m: Number, v: Number, send: Number, *passes: Number
    ) -> Number:
        return formula(Job(p, m, v, Passes(*passes[:3]), Passes(*passes[3:6]), Passes(*passes[6:]), send))

    code = np.where(np.asarray(pipeline) > 1, schedule, len(FORMULAS))
    return _by_code(code, [partial(priced, formula) for formula in (*FORMULAS, one_rank)], columns)


def in_flight(
    schedule: Number, pipeline: Number, micro_batches: Number, virtual_stages: Number, rank: Number
) -> Number:
    """Peak number of micro-batches whose activations pipeline rank `rank` holds, in units of all its layers.

    An activation counts until its backward is complete, the weight gradient included; `awaiting_weight` says how many
    of them wait for that alone. gpipe and loopedbfs: m. 1f1b: min(m, p-r) (arXiv:1806.03377). interleaved1f1b:
    min(v*m, 2(p-r-1) + (v-1)k + 1) / v with k micro-batches a round, k = p where p divides m (arXiv:2104.04473;
    for r = 0 arXiv:2205.05198 section 4.2.3). Zero bubble: on every rank what rank 0 of 1f1b holds, v times the round
    (arXiv:2401.10241); dualpipev one chunk more (arXiv:2412.19437). Equal to the count over PyTorch's tables.
    """
    most = virtual_stages * micro_batches
    stages = _by_code(schedule, _STAGES_HELD, [pipeline, micro_batches, virtual_stages, rank])
    return np.minimum(most, stages) / virtual_stages


def awaiting_weight(
    schedule: Number, pipeline: Number, micro_batches: Number, virtual_stages: Number, rank: Number
) -> Number:
    """Of the activations `in_flight`, those whose input gradient is done and whose weight gradient is not.

    In the same unit. Only interleavedzerobubble holds any at its peak: rank r puts off r weight gradients.
    """
    most = virtual_stages * micro_batches
    held = (virtual_stages - 1) * round_size(pipeline, micro_batches) + pipeline
    put_off = np.minimum(most, held) - np.minimum(most, held - rank)
    return np.where(np.asarray(schedule) == INTERLEAVED_ZERO_BUBBLE, put_off / virtual_stages, 0.0)[()]


def weight_versions(pipeline: Number, rank: Number) -> Number:
    """Copies of its weights that rank `rank` keeps in PipeDream's asynchronous 1F1B: p - r.

    One a micro-batch in flight, so that a backward meets its forward's weights (arXiv:1806.03377 section 3.3).
    """
    return pipeline - rank


_STAGES_HELD: tuple[Callable[[Number, Number, Number, Number], Number], ...] = (
    lambda p, m, v, r: v * m + 0 * r,
    lambda p, m, v, r: p - r,
    lambda p, m, v, r: (v - 1) * round_size(p, m) + 2 * (p - r - 1) + 1,
    lambda p, m, v, r: v * m + 0 * r,
    lambda p, m, v, r: (v - 1) * round_size(p, m) + p + 0 * r,
    lambda p, m, v, r: np.minimum(2 * p, m + r + 1),
    lambda p, m, v, r: 2 * p + 1 + 0 * r,
)
"""By a schedule's code: the stage activations that rank r would hold with enough micro-batches."""


def _by_code(code: Number, formulas: Sequence[Callable[..., Number]], columns: Sequence[Number]) -> Number:
    """Each row by the formula of its code; a formula sees only the rows that are its own."""
    present = [k for k in range(len(formulas)) if np.any(np.asarray(code) == k)]
    if len(present) == 1:
        return formulas[present[0]](*columns)
    code, *columns = np.broadcast_arrays(code, *columns)
    result = np.full(code.shape, np.nan)
    for k in present:
        rows = code == k
        result[rows] = formulas[k](*(column[rows] for column in columns))
    return result
