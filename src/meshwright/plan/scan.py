"""Scan: every layout of the space decided, memory first, and the few kept that the answer needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from meshwright.cost.memory import peak_memory
from meshwright.cost.step import step_time
from meshwright.cost.verdict import RISK_SHARE
from meshwright.plan.candidates import (
    Candidates,
    as_floats,
    best_of_each,
    family_codes,
    family_count,
    front,
    join,
    whole_columns,
)
from meshwright.plan.question import Question
from meshwright.plan.runtimes import runtime_bit, runtimes_of
from meshwright.plan.space import Axes, axes, chunks, shapes, variants
from meshwright.plan.states import Overflow, split_by_states
from meshwright.spec.columns import LayoutColumns
from meshwright.spec.layout import Layout
from meshwright.spec.rules import RUNTIMES, legal_mask

KEPT = 3
"""Layouts of a family that may come to the shortlist."""
KEPT_OF_RUNTIME = 4
"""Layouts that one runtime runs, for the same."""


@dataclass(frozen=True, slots=True)
class Illegal:
    """Layouts that break one rule first."""

    reason: str
    count: int
    example: Layout


@dataclass(frozen=True, slots=True)
class Scan:
    """What became of the space's layouts. Every Candidates holds the best rows of each family."""

    degrees: Axes
    searched: int
    """Layouts whose legality was decided."""
    memory_priced: int
    """Of those, the ones whose memory was priced one by one: legal, and their states alone leave room."""
    feasible: int
    """Of those, the ones that fit: all of them have a price in seconds."""
    illegal: tuple[Illegal, ...]
    """By the first rule that is broken, most layouts first."""
    kept: Candidates
    """Layouts that fit."""
    fastest: Candidates
    """Of each family the fastest layout that fits safely, else the fastest that fits."""
    too_big: Candidates
    """The leanest of each family that does not fit."""
    too_big_by_family: np.ndarray
    feasible_by_family: np.ndarray
    pareto: Candidates
    """No layout that fits is both faster and leaner than one of these; fastest first."""


Progress = Callable[[int, int], None]
"""Told after each chunk: how many layouts are decided, and of how many."""


def scan(question: Question, progress: Progress | None = None) -> Scan:
    """Decide every layout of the space on `question.devices` devices."""
    q = question
    degrees = axes(q.model, q.cluster, q.workload, q.devices)
    tally = _Tally(q, degrees)
    left, overflow = split_by_states(q, shapes(degrees, q.cluster, q.devices, offload=q.offload))
    tally.add_overflow(overflow)
    total = tally.searched + sum(variants(q.model, q.workload, shape) * shape.ways for shape in left)
    for columns in chunks(q.model, q.workload, left):
        tally.add(columns)
        if progress is not None:
            progress(tally.searched, total)
    return tally.result()


@dataclass(slots=True)
class _Tally:
    """Counts and kept rows of the chunks so far."""

    question: Question
    degrees: Axes
    searched: int = 0
    memory_priced: int = 0
    illegal: dict[str, Illegal] = field(default_factory=dict)
    kept: list[Candidates] = field(default_factory=list)
    fastest: list[Candidates] = field(default_factory=list)
    too_big: list[Candidates] = field(default_factory=list)
    pareto: list[Candidates] = field(default_factory=list)
    too_big_by_family: np.ndarray = field(default_factory=lambda: np.zeros(0))
    feasible_by_family: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        count = family_count(self.degrees)
        self.too_big_by_family = np.zeros(count, dtype=np.int64)
        self.feasible_by_family = np.zeros(count, dtype=np.int64)

    def add_overflow(self, found: Overflow) -> None:
        """Count what cannot fit whatever its activations."""
        family = family_codes(found.columns, self.degrees)
        self.searched += int(found.layouts.sum())
        np.add.at(self.too_big_by_family, family, found.layouts)
        self._leave(found.columns, family, found.reserved)

    def add(self, columns: LayoutColumns) -> None:
        """Decide a chunk: legality, then memory of what is legal, then time of what fits."""
        q = self.question
        mask, reasons = legal_mask(q.model, q.cluster, q.workload, columns, runtime=q.runtime, spare=q.spare)
        self.searched += mask.size
        for reason, rows in reasons.items():
            self._refuse(reason, int(np.count_nonzero(rows)), columns, int(np.argmax(rows)))
        family = family_codes(columns, self.degrees)[mask]
        whole = columns.take(mask)
        legal = as_floats(whole)
        self.memory_priced += family.size
        if not family.size:
            return
        peak = peak_memory(q.model, q.cluster, q.workload, legal, q.software)
        room = (peak.reserved <= q.cluster.device.memory_bytes) & (peak.host <= q.cluster.host_memory_bytes)
        big = ~room
        self.too_big_by_family += np.bincount(family[big], minlength=self.too_big_by_family.size)
        self._leave(legal.take(big), family[big], peak.reserved[big])
        runtimes = runtimes_of(q, whole.take(room), int(np.count_nonzero(room)))
        self._keep(Candidates(legal.take(room), peak.reserved[room], np.zeros(runtimes.size), family[room], runtimes))

    def _refuse(self, reason: str, count: int, columns: LayoutColumns, first: int) -> None:
        known = self.illegal.get(reason)
        example = known.example if known else columns.row(first)
        self.illegal[reason] = Illegal(reason, count + (known.count if known else 0), example)

    def _leave(self, columns: LayoutColumns, family: np.ndarray, reserved: np.ndarray) -> None:
        """Keep the leanest of each family that does not fit."""
        unpriced = np.full(reserved.size, np.inf)
        rows = Candidates(columns, reserved, unpriced, family, np.zeros_like(family))
        self.too_big.append(_whole(rows, best_of_each(family, [reserved], 1)))

    def _keep(self, fitting: Candidates) -> None:
        """Price what fits, count it, and keep what may matter."""
        if not len(fitting):
            return
        q = self.question
        self.feasible_by_family += np.bincount(fitting.family, minlength=self.feasible_by_family.size)
        total = step_time(q.model, q.cluster, q.workload, fitting.columns, q.software).total
        # The total is one number where nothing in the chunk varies.
        rows = replace(fitting, seconds=np.broadcast_to(total, fitting.reserved.shape))
        self.kept.append(_whole(rows, self._best(rows)))
        self.fastest.append(_whole(rows, self._fastest(rows)))
        self.pareto.append(_whole(rows, front(rows.seconds, rows.reserved)))

    def _best(self, rows: Candidates) -> np.ndarray:
        """The best of each family, and of all that a runtime runs; those at risk apart."""
        keys = [rows.reserved, rows.seconds] if self.question.by_memory else [rows.seconds, rows.reserved]
        risky = self._risky(rows)
        found = [best_of_each(rows.family * 2 + risky, keys, KEPT)]
        for runtime in RUNTIMES:
            runs = np.flatnonzero(rows.runtimes & runtime_bit(runtime))
            found.append(runs[best_of_each(risky[runs], [key[runs] for key in keys], KEPT_OF_RUNTIME)])
        return np.unique(np.concatenate(found))

    def _fastest(self, rows: Candidates) -> np.ndarray:
        return best_of_each(rows.family, [self._risky(rows), rows.seconds, rows.reserved], 1)

    def _risky(self, rows: Candidates) -> np.ndarray:
        return rows.reserved > RISK_SHARE * self.question.cluster.device.memory_bytes

    def result(self) -> Scan:
        """What the chunks come to."""
        kept, fastest, too_big, pareto = (join(p) for p in (self.kept, self.fastest, self.too_big, self.pareto))
        return Scan(
            degrees=self.degrees,
            searched=self.searched,
            memory_priced=self.memory_priced,
            feasible=int(self.feasible_by_family.sum()),
            illegal=tuple(sorted(self.illegal.values(), key=lambda found: -found.count)),
            kept=kept.take(self._best(kept)),
            fastest=fastest.take(self._fastest(fastest)),
            too_big=too_big.take(best_of_each(too_big.family, [too_big.reserved], 1)),
            too_big_by_family=self.too_big_by_family,
            feasible_by_family=self.feasible_by_family,
            pareto=pareto.take(front(pareto.seconds, pareto.reserved)),
        )


def _whole(rows: Candidates, at: np.ndarray) -> Candidates:
    """The rows at these positions, with every column an array."""
    picked = rows.take(at)
    return replace(picked, columns=whole_columns(picked.columns, at.size))
