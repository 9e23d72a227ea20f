"""Makespan of one step under each pipeline schedule, in closed form, over numbers or columns.

Each formula is the longest path through the schedule's table: the slowest rank's work, plus the fill and drain of the
ranks around it, plus the sends on the way. Derived for PyTorch's tables and compared with `simulate`; for even stages
they are exact but for the cases that `pipeline_seconds` names. `q` is p - 1, the hops between the first and last rank.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from meshwright.spec.layout import SCHEDULES

Number = Any
"""An int, a float, or a numpy array of either."""


@dataclass(frozen=True, slots=True)
class Passes:
    """Seconds of one micro-batch's three passes; recomputation belongs to `input_gradient`."""

    forward: Number
    input_gradient: Number
    weight_gradient: Number

    @property
    def backward(self) -> Number:
        """Seconds of the whole backward."""
        return self.input_gradient + self.weight_gradient

    @property
    def total(self) -> Number:
        """Seconds of all three."""
        return self.forward + self.backward


@dataclass(frozen=True, slots=True)
class Job:
    """What one step's time depends on; see `pipeline.pipeline_seconds`."""

    p: Number
    m: Number
    v: Number
    rank: Passes
    first: Passes
    last: Passes
    send: Number

    @property
    def q(self) -> Number:
        """Hops from the first rank to the last."""
        return self.p - 1

    @property
    def edges(self) -> Number:
        """What one micro-batch spends in the first and last stage on top."""
        return self.first.total + self.last.total

    @property
    def stage(self) -> tuple[Number, Number, Number]:
        """Forward, input gradient and weight gradient of one ordinary stage."""
        return self.rank.forward / self.v, self.rank.input_gradient / self.v, self.rank.weight_gradient / self.v


def round_size(pipeline: Number, micro_batches: Number) -> Number:
    """Micro-batches of one round of an interleaved schedule, as PyTorch cuts them: p where p divides m."""
    return micro_batches // np.maximum(1, micro_batches // pipeline)


def largest(*values: Number) -> Number:
    """The element-wise maximum."""
    return reduce(np.maximum, values)


def one_rank(job: Job) -> Number:
    """No pipeline: one rank does all the work."""
    return job.m * (job.rank.total + job.edges)


def gpipe(job: Job) -> Number:
    """A flow shop: one micro-batch passes all stages, the others follow at the slowest stage's pace."""
    f = job.rank.forward + _slowest_stage(job, job.first.forward, job.last.forward)
    b = job.rank.backward + _slowest_stage(job, job.first.backward, job.last.backward)
    return job.p * job.rank.total + job.edges + (job.m - 1) * (f + b) + 2 * job.q * job.send


def _slowest_stage(job: Job, first: Number, last: Number) -> Number:
    """What the slowest of p stages takes on top of an ordinary one; with two ranks there is no ordinary one."""
    return np.maximum(np.maximum(first, last), np.where(job.p > 2, 0.0, -np.inf))


def one_f_one_b(job: Job) -> Number:
    """1F1B: paced by the first or last rank's work, or by results that travel between ranks."""
    p, q, m, t = job.p, job.q, job.m, job.rank.total
    behind = q * t + job.last.total + 2 * q * job.send
    f, b = job.rank.forward + job.first.forward, job.rank.backward + job.first.backward
    # Rank 0 waits for its first gradient after p forwards, and for its last p gradients at the end.
    waits = np.maximum(0, behind - q * f) + np.maximum(0, behind - q * b)
    first_paces = np.where(m > p, m * (f + b) + waits, f + b + behind + (m - 1) * np.maximum(f, b))
    last_paces = m * (t + job.last.total) + q * t + job.first.total + 2 * q * job.send
    trips = [_round_trips(job, skip_first, skip_last) for skip_first in (0, 1) for skip_last in (0, 1)]
    return largest(first_paces, last_paces, *trips)


def _round_trips(job: Job, skip_first: int, skip_last: int) -> Number:
    """Rank r may have p - r micro-batches in flight: each p - r of them wait for one trip to the last rank and back.

    The longest chain of such trips between the first and the last rank, with or without these two themselves.
    """
    t, first, last = job.rank.total, job.first.total, job.last.total
    width = job.p - skip_first - skip_last
    trips, rest = np.divmod(job.m - 1 - skip_last, np.maximum(1, width))
    once = job.p * t + job.edges + 2 * job.q * job.send
    trip = 2 * (width - 1) * job.send + first * (1 - skip_first) + last * (1 - skip_last)
    end = np.where(rest > 0, 2 * (rest - 1) * job.send + last * (1 - skip_last), 0.0)
    chain = once + (job.m - 1) * t + trips * trip + end + skip_last * (last + 2 * job.send)
    return np.where((width >= 1) & (job.m > 2 * skip_last), chain, 0.0)


def interleaved(job: Job) -> Number:
    """Interleaved 1F1B: the fill is v times shorter; a round shorter than p, or late sends, delay the next stage."""
    f, i, w = job.stage
    b = i + w
    short = job.p - round_size(job.p, job.m)
    loops = _late(job, short * f) + _late(job, short * b)
    return _looped(job, job.q * (f + b + 2 * job.send) + loops, kept=0.5, rounds=1)


def _late(job: Job, shortfall: Number) -> Number:
    """Seconds that stage after stage of a rank waits for a result that comes round from the last rank."""
    return (job.v - 1) * np.maximum(0, shortfall + job.p * job.send)


def _looped(job: Job, fill: Number, kept: float, rounds: Number) -> Number:
    """Ordinary, last or first rank is the slowest; the other edge, if slow too, costs its time in one round.

    Where the first rank is the slowest, it works while the others fill, and the share `kept` of the fill remains.
    """
    t, first, last = job.rank.total, job.first.total, job.last.total

    def beside(edge: Number) -> Number:
        return np.where(edge > 0, np.minimum(job.m, job.p) * rounds, 1) * edge

    return largest(
        job.m * _ordinary(job) + fill + job.edges,
        job.m * (t + last) + fill + beside(first),
        job.m * (t + first) + kept * fill + beside(last),
    )


def _ordinary(job: Job) -> Number:
    """Seconds of a rank without an edge; with two ranks there is none, and the slower of the two stands for it."""
    faster = np.minimum(0.0, np.maximum(job.first.total, job.last.total))
    return job.rank.total + np.where(job.p > 2, 0.0, faster)


def looped_bfs(job: Job) -> Number:
    """Breadth first: a slow edge stage slows all ranks while its turn lasts, so that slow edges add up."""
    f, i, w = job.stage
    b = i + w
    short = job.p - job.m
    fill = job.q * (f + b + 2 * job.send) + _late(job, short * f) + _late(job, short * b)
    passes = (job.first.forward, job.last.forward, job.first.backward, job.last.backward)
    slower = sum(np.maximum(0, extra) for extra in passes)
    looped = job.m * _ordinary(job) + fill + job.edges + (job.m - 1) * slower
    return np.where(job.v > 1, looped, gpipe(job))


def interleaved_zero_bubble(job: Job) -> Number:
    """ZB1P: weight gradients fill the drain; (p-1)(f + i - w) remains (arXiv:2401.10241), or the longer pass."""
    f, i, w = job.stage
    sends = (4 * job.q - np.where(job.m > job.p, 0, 2)) * job.send
    loops = _late(job, (job.p - round_size(job.p, job.m)) * f)
    fill = job.q * largest(f + i - w, f, i) + sends + loops
    stages = job.v * job.p
    few = (stages + job.m - 1) * (f + i) + w + job.edges + 2 * (stages - 1) * job.send
    return np.maximum(_looped(job, fill, kept=1.0, rounds=np.where(job.v > 1, 1, 0)), few)


def zbv(job: Job) -> Number:
    """ZB-V: no bubble but the fill where the passes are equal; (p-1) of the input gradients where these are longer."""
    f, i, w = job.stage
    p, q, m = job.p, job.q, job.m
    fill = largest(q * i, 2 * q * (i - w), i + (q - 1) * w, f + (q - 1) * w, (2 * q - 1) * f - (q - 1) * i)
    few = 2 * np.maximum(m, p) * f + 2 * (p + m - 1) * i + 2 * np.minimum(m, p) * w + job.edges + 4 * q * job.send
    return np.maximum(_v_shaped(job, fill + (5 * q - 2) * job.send), few)


def dualpipe_v(job: Job) -> Number:
    """DualPipeV, its pairs run one pass after the other as PyTorch does unless told how to overlap them."""
    f, i, w = job.stage
    p, q = job.p, job.q
    fill = largest(2 * q * f, q * (2 * f + i - w), (q - 1) * f + 2 * q * i - q * w)
    return _v_shaped(job, fill + (2 * q * job.m / p + 4 * q - 2) * job.send)


def _v_shaped(job: Job, fill: Number) -> Number:
    """Rank 0 holds both edges; where it is the slowest, about half of the fill remains."""
    work = job.m * job.rank.total
    return np.maximum(work + fill + job.edges, work + job.m * job.edges + 0.5 * fill)


FORMULAS: tuple[Callable[[Job], Number], ...] = (
    gpipe,
    one_f_one_b,
    interleaved,
    looped_bfs,
    interleaved_zero_bubble,
    zbv,
    dualpipe_v,
)
"""By a schedule's code."""
assert len(FORMULAS) == len(SCHEDULES)
