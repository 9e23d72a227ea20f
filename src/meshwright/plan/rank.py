"""Rank: the order of the layouts that fit, safe ones first, and which of them are worth showing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.cost.verdict import RISK_SHARE
from meshwright.plan.candidates import Candidates, join
from meshwright.plan.question import Question
from meshwright.plan.scan import Scan
from meshwright.plan.shortlist import SIZE, action_budget, reprice
from meshwright.plan.space import DEGREES

ALIKE = 2
"""Layouts of one family (degrees and ZeRO stage) among those that are shown."""
WORTH_THE_RISK = 0.95
"""A layout that may run out of memory is shown if it takes less than this share of the best safe one's time."""
RISKY_SIZE = 4
"""Layouts at risk on the shortlist, where safe ones exist."""
TIE_DIGITS = 3
"""Prices that differ from the best by the same share, to so many decimals, are equal; fewer axes and less sharding then
come first."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Layouts to show, best first."""

    chosen: Candidates
    seconds: np.ndarray
    """Step seconds, simulated where the shortlist was."""
    risky: bool
    """The last one is faster than the first, but at risk of running out of memory."""
    simulated: int


def rank(question: Question, found: Scan, top: int) -> Ranking:
    """The `top` layouts, not all alike. Layouts at risk come in only if nothing else fits, or as a faster last one."""
    at_risk = found.kept.reserved > RISK_SHARE * question.cluster.device.memory_bytes
    safe, risky = found.kept.take(~at_risk), found.kept.take(at_risk)
    budget = action_budget(found.searched)
    best = _listed(question, safe if len(safe) else risky, SIZE, budget)
    if question.by_memory or not len(safe):
        return best.first(top)
    daring = _listed(question, risky, RISKY_SIZE, budget)
    if top == 1 or not len(daring.rows) or daring.seconds[0] >= WORTH_THE_RISK * best.seconds[0]:
        return best.first(top)
    safest, fastest = best.first(top - 1), daring.first(1)
    return Ranking(
        join([safest.chosen, fastest.chosen]),
        np.r_[safest.seconds, fastest.seconds],
        risky=True,
        simulated=safest.simulated + fastest.simulated,
    )


@dataclass(frozen=True, slots=True)
class _Listed:
    """A shortlist in order."""

    rows: Candidates
    seconds: np.ndarray
    simulated: int

    def first(self, top: int) -> Ranking:
        """The first `top` of them that are not all alike."""
        shown = _varied(self.rows, top)
        return Ranking(self.rows.take(shown), self.seconds[shown], risky=False, simulated=self.simulated)


def _listed(question: Question, rows: Candidates, size: int, budget: int) -> _Listed:
    """The best by closed form, priced again and put in order."""
    keys = (rows.seconds, rows.reserved) if question.by_memory else (rows.reserved, rows.seconds)
    best = rows.take(np.lexsort(keys)[:size])
    priced = reprice(question, best, budget)
    if not len(best):
        return _Listed(best, priced.seconds, 0)
    first, second = (best.reserved, priced.seconds) if question.by_memory else (priced.seconds, best.reserved)
    order = np.lexsort((second, best.columns.zero_stage, _axes(best), np.round(first / first.min(), TIE_DIGITS)))
    return _Listed(best.take(order), priced.seconds[order], int(priced.simulated.sum()))


def _axes(rows: Candidates) -> np.ndarray:
    """How many axes each layout has."""
    c = rows.columns
    used = [getattr(c, name) > 1 for name in DEGREES]
    return np.asarray(np.sum([*used, (c.replicate > 1) & (c.shard > 1)], axis=0))


def _varied(rows: Candidates, top: int) -> np.ndarray:
    """Positions of the first `top`, at most ALIKE of one family."""
    seen: dict[int, int] = {}
    shown: list[int] = []
    for index, family in enumerate(rows.family.tolist()):
        if seen.get(family, 0) < ALIKE and len(shown) < top:
            seen[family] = seen.get(family, 0) + 1
            shown.append(index)
    return np.array(shown, dtype=np.int64)
