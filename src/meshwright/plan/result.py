"""Plan: ranked Estimates, the rejected layouts and why, and what a person should know before acting on them."""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.cost.result import Estimate
from meshwright.plan.evidence import NearRun
from meshwright.plan.remedies import Remedy
from meshwright.plan.scores import ErrorScore


@dataclass(frozen=True, slots=True)
class Rejected:
    """Layouts that lost for one reason."""

    reason: str
    count: int
    example: str
    """One of them, in layout notation."""


@dataclass(frozen=True, slots=True)
class ParetoPoint:
    """A layout that no other beats in both step time and memory."""

    layout: str
    step_seconds: float
    reserved_bytes: float
    verdict: str


@dataclass(frozen=True, slots=True)
class RuntimeBest:
    """The best layout that one runtime runs."""

    runtime: str
    best: ParetoPoint | None
    """None where no layout that fits is run by it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer of a search."""

    plans: tuple[Estimate, ...]
    """Best first."""
    searched: int
    """Layouts whose legality was decided."""
    feasible: int
    """Of those, legal and within memory; all of them have a price in seconds."""
    seconds: float
    rejected: tuple[Rejected, ...]
    pareto: tuple[ParetoPoint, ...]
    """Fastest first, each next one smaller."""
    advice: tuple[str, ...]
    """The rules of thumb with this job's numbers, and whether the search agrees."""
    warnings: tuple[str, ...]
    nearest: tuple[NearRun, ...]
    """Published runs most like the best plan, with what is predicted of them."""
    memory_priced: int = 0
    """Of the searched, those whose memory was priced one by one: legal, and their states alone leave room."""
    simulated: int = 0
    """Of the feasible, those whose pipeline was run event by event."""
    by_runtime: tuple[RuntimeBest, ...] = ()
    """What each runtime can run; empty where the search was for one of them."""
    beaten: ParetoPoint | None = None
    """The best layout by the numbers, where a simpler one within 1 % of it is the first of `plans`."""
    error: ErrorScore | None = None
    """Of the step times predicted of more published runs near the best plan."""
    remedies: tuple[Remedy, ...] = ()
    """Where nothing fits: changes of the job, tried."""
