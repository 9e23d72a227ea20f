"""Scan: every layout of the space decided, memory first, and the few kept that the answer needs."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from meshwright.cost.memory import peak_memory
from meshwright.cost.step import step_time
from meshwright.cost.verdict import RISK_SHARE
from meshwright.plan.candidates import Candidates, best_of_each, family_codes, family_count, front, join, whole_columns
from meshwright.plan.space import Axes, axes, chunks
from meshwright.spec.cluster import Cluster
from meshwright.spec.columns import LayoutColumns
from meshwright.spec.implementation import Implementation, load_implementation
from meshwright.spec.layout import Layout
from meshwright.spec.model import Model
from meshwright.spec.rules import legal_mask
from meshwright.spec.workload import Workload

KEPT = 3
"""Layouts of a family that may come to the shortlist."""


@dataclass(frozen=True, slots=True)
class Illegal:
    """Layouts that break one rule first."""

    reason: str
    count: int
    example: Layout


@dataclass(frozen=True, slots=True)
class Question:
    """What a scan is about."""

    model: Model
    cluster: Cluster
    workload: Workload
    devices: int
    """Devices that the layouts use: all of the cluster, or fewer."""
    offload: bool = False
    by_memory: bool = False
    """Keep the leanest layouts, not the fastest."""

    @property
    def software(self) -> Implementation:
        """The class of software that the workload names."""
        return load_implementation(self.workload.implementation)


@dataclass(frozen=True, slots=True)
class Scan:
    """What became of the space's layouts. Every Candidates holds the best rows of each family."""

    degrees: Axes
    searched: int
    """Layouts whose legality was decided."""
    legal: int
    """Of those, the ones that some runtime takes: all of them have a price in bytes."""
    feasible: int
    """Of those, the ones that fit: all of them have a price in seconds."""
    illegal: tuple[Illegal, ...]
    """By the first rule that is broken, most layouts first."""
    kept: Candidates
    """Layouts that fit."""
    fastest: Candidates
    """The fastest layout that fits of each family, safe or not."""
    too_big: Candidates
    """The leanest of each family that does not fit."""
    too_big_by_family: np.ndarray
    feasible_by_family: np.ndarray
    pareto: Candidates
    """No layout that fits is both faster and leaner than one of these; fastest first."""


def scan(question: Question) -> Scan:
    """Decide every layout of the space on `question.devices` devices."""
    tally = _Tally(question, axes(question.model, question.workload, question.devices))
    for columns in chunks(question.model, question.workload, question.devices, offload=question.offload):
        tally.add(columns)
    return tally.result()


@dataclass(slots=True)
class _Tally:
    """Counts and kept rows of the chunks so far."""

    question: Question
    degrees: Axes
    searched: int = 0
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

    def add(self, columns: LayoutColumns) -> None:
        """Decide a chunk: legality, then memory of what is legal, then time of what fits."""
        q = self.question
        spare = q.devices < q.cluster.devices
        mask, reasons = legal_mask(q.model, q.cluster, q.workload, columns, spare=spare)
        self.searched += mask.size
        for reason, rows in reasons.items():
            self._refuse(reason, int(np.count_nonzero(rows)), columns, int(np.argmax(rows)))
        legal = columns.take(mask)
        family = family_codes(legal, self.degrees)
        peak = peak_memory(q.model, q.cluster, q.workload, legal, q.software)
        room = (peak.reserved <= q.cluster.device.memory_bytes) & (peak.host <= q.cluster.host_memory_bytes)
        self._leave(legal, family, peak.reserved, ~room)
        self._keep(legal.take(room), family[room], peak.reserved[room])

    def _refuse(self, reason: str, count: int, columns: LayoutColumns, first: int) -> None:
        known = self.illegal.get(reason)
        example = known.example if known else columns.row(first)
        self.illegal[reason] = Illegal(reason, count + (known.count if known else 0), example)

    def _leave(self, columns: LayoutColumns, family: np.ndarray, reserved: np.ndarray, big: np.ndarray) -> None:
        """Count what does not fit, and keep the leanest of each family."""
        at = np.flatnonzero(big)
        self.too_big_by_family += np.bincount(family[at], minlength=self.too_big_by_family.size)
        leanest = at[best_of_each(family[at], [reserved[at]], 1)]
        rows = whole_columns(columns.take(leanest), leanest.size)
        self.too_big.append(Candidates(rows, reserved[leanest], np.full(leanest.size, np.inf), family[leanest]))

    def _keep(self, columns: LayoutColumns, family: np.ndarray, reserved: np.ndarray) -> None:
        """Price what fits, count it, and keep what may matter."""
        q = self.question
        self.feasible_by_family += np.bincount(family, minlength=self.feasible_by_family.size)
        seconds = np.broadcast_to(
            step_time(q.model, q.cluster, q.workload, columns, q.software).total, reserved.shape
        )  # one number where nothing in the chunk varies
        rows = Candidates(columns, reserved, seconds, family)
        self.kept.append(_whole(rows, self._best(rows)))
        self.fastest.append(_whole(rows, best_of_each(family, [seconds, reserved], 1)))
        self.pareto.append(_whole(rows, front(seconds, reserved)))

    def _best(self, rows: Candidates) -> np.ndarray:
        """The best of each family, those at risk apart."""
        keys = [rows.reserved, rows.seconds] if self.question.by_memory else [rows.seconds, rows.reserved]
        risky = rows.reserved > RISK_SHARE * self.question.cluster.device.memory_bytes
        return best_of_each(rows.family * 2 + risky, keys, KEPT)

    def result(self) -> Scan:
        """What the chunks come to."""
        kept, fastest, too_big, pareto = (join(p) for p in (self.kept, self.fastest, self.too_big, self.pareto))
        legal = int(self.feasible_by_family.sum() + self.too_big_by_family.sum())
        return Scan(
            degrees=self.degrees,
            searched=self.searched,
            legal=legal,
            feasible=int(self.feasible_by_family.sum()),
            illegal=tuple(sorted(self.illegal.values(), key=lambda found: -found.count)),
            kept=kept.take(self._best(kept)),
            fastest=fastest.take(best_of_each(fastest.family, [fastest.seconds, fastest.reserved], 1)),
            too_big=too_big.take(best_of_each(too_big.family, [too_big.reserved], 1)),
            too_big_by_family=self.too_big_by_family,
            feasible_by_family=self.feasible_by_family,
            pareto=pareto.take(front(pareto.seconds, pareto.reserved)),
        )


def _whole(rows: Candidates, at: np.ndarray) -> Candidates:
    """The rows at these positions, with every column an array."""
    picked = rows.take(at)
    return Candidates(whole_columns(picked.columns, at.size), picked.reserved, picked.seconds, picked.family)
