"""Rank: the order of the layouts that fit, safe ones first, and which of them are worth showing.

The order is that of the step time (or of the memory) as it is printed, to three digits; among equals, fewer axes and
less sharding come first. One exception: among layouts within TIE of the fastest, the first is one that some runtime
runs, that does not share gradients or parameters anew for each micro-batch of a pipeline (ZeRO-2 and ZeRO-3), and that
has the fewest axes. An estimate is wrong by more than TIE; a program that exists and is simple is worth that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.cost.verdict import RISK_SHARE, verdict
from meshwright.plan.candidates import Candidates, join
from meshwright.plan.question import Question
from meshwright.plan.result import ParetoPoint, RuntimeBest
from meshwright.plan.runtimes import runtime_bit
from meshwright.plan.scan import Scan
from meshwright.plan.shortlist import SIZE, action_budget, reprice
from meshwright.plan.space import DEGREES
from meshwright.spec.layout import SCHEDULES
from meshwright.spec.notation import format_layout
from meshwright.spec.rules import RUNTIMES

ALIKE = 2
"""Layouts of one family (degrees and ZeRO stage) among those that are shown."""
WORTH_THE_RISK = 0.95
"""A layout that may run out of memory is shown if it takes less than this share of the best safe one's time."""
RISKY_SIZE = 4
"""Layouts at risk on the shortlist, where safe ones exist."""
OTHERS = 4
"""Layouts on the shortlist because they are the best that one runtime runs, or the simplest of the nearly best."""
TIE = 0.01
"""Share by which a layout may be worse than the best and still come first, if it is simpler."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Layouts to show, best first."""

    chosen: Candidates
    seconds: np.ndarray
    """Step seconds, simulated where the shortlist was."""
    risky: bool
    """The last one is faster than the first, but at risk of running out of memory."""
    simulated: int
    by_runtime: tuple[RuntimeBest, ...] = ()
    beaten: ParetoPoint | None = None
    """The best layout, where a simpler one within TIE of it comes first."""


def rank(question: Question, found: Scan, top: int) -> Ranking:
    """The `top` layouts, not all alike. Layouts at risk come in only if nothing else fits, or as a faster last one."""
    at_risk = found.kept.reserved > RISK_SHARE * question.cluster.device.memory_bytes
    budget = action_budget(found.searched)
    safe = _listed(question, found.kept.take(~at_risk), SIZE, budget)
    risky_rows = found.kept.take(at_risk)
    if len(safe.rows) and risky_rows.seconds.min(initial=np.inf) >= WORTH_THE_RISK * safe.seconds.min():
        budget = 0  # Simulation seldom makes a layout faster: none is worth the risk.
    risky = _listed(question, risky_rows, RISKY_SIZE if len(safe.rows) else SIZE, budget)
    best = safe if len(safe.rows) else risky
    runtimes = () if question.runtime else tuple(_best_of(question, name, safe, risky) for name in RUNTIMES)
    dared = len(safe.rows) and len(risky.rows) and top > 1 and not question.by_memory
    if dared and risky.seconds.min() < WORTH_THE_RISK * best.seconds.min():
        shown, last = _varied(best, top - 1), np.array([np.argmin(risky.seconds)])
        chosen = join([best.rows.take(shown), risky.rows.take(last)])
        seconds = np.r_[best.seconds[shown], risky.seconds[last]]
    else:
        dared, shown = False, _varied(best, top)
        chosen, seconds = best.rows.take(shown), best.seconds[shown]
    simulated = best.simulated + (risky.simulated if dared else 0)
    return Ranking(chosen, seconds, bool(dared), simulated, runtimes, _beaten(question, best))


@dataclass(frozen=True, slots=True)
class _Listed:
    """A shortlist in order."""

    rows: Candidates
    seconds: np.ndarray
    printed: np.ndarray
    """What the order is by, as it is printed."""
    simulated: int


def _listed(question: Question, rows: Candidates, size: int, budget: int) -> _Listed:
    """The best by closed form, priced again and put in order."""
    if not len(rows):
        return _Listed(rows, rows.seconds, rows.seconds, 0)
    best = rows.take(_shortlist(question, rows, size))
    priced = reprice(question, best, budget)
    first, second = (best.reserved, priced.seconds) if question.by_memory else (priced.seconds, best.reserved)
    printed = _printed(first)
    order = np.lexsort((second, first, best.columns.zero_stage, _axes(best), printed))
    near = order[first[order] <= (1 + TIE) * first.min()]
    keys = (second[near],) if question.by_memory else (printed[near], *_complexity(best.take(near)))
    pick = near[np.lexsort(keys)[0]]
    order = np.r_[pick, order[order != pick]]
    return _Listed(best.take(order), priced.seconds[order], printed[order], int(priced.simulated.sum()))


def _shortlist(question: Question, rows: Candidates, size: int) -> np.ndarray:
    """Positions of the best by closed form, best first: over all, of each runtime, and the simplest of those near."""
    first, second = (rows.reserved, rows.seconds) if question.by_memory else (rows.seconds, rows.reserved)
    order = np.lexsort((second, first))
    near = order[first[order] <= (1 + TIE) * first.min()]
    simple = near[np.lexsort((first[near], *_complexity(rows.take(near))))]
    of_runtimes = [order[rows.runtimes[order] & runtime_bit(name) > 0][:OTHERS] for name in RUNTIMES]
    wanted = np.concatenate([order[:size], simple[:OTHERS], *of_runtimes])
    return order[np.isin(order, wanted)]


def _complexity(rows: Candidates) -> tuple[np.ndarray, ...]:
    """Keys by which a layout is simpler, the most important last, as `lexsort` takes them."""
    c = rows.columns
    chatty = (np.asarray(c.pipeline) > 1) & (np.asarray(c.zero_stage) >= 2)
    return np.asarray(c.zero_stage), _axes(rows), chatty, rows.runtimes == 0


def _axes(rows: Candidates) -> np.ndarray:
    """How many axes each layout has."""
    c = rows.columns
    used = [getattr(c, name) > 1 for name in DEGREES]
    return np.asarray(np.sum([*used, (c.replicate > 1) & (c.shard > 1)], axis=0))


def _printed(values: np.ndarray) -> np.ndarray:
    """Positive numbers to the three digits that people see."""
    scale = 10.0 ** (np.floor(np.log10(values)) - 2)
    return np.asarray(np.round(values / scale) * scale)


def _varied(listed: _Listed, top: int) -> np.ndarray:
    """Positions of the first `top`: at most ALIKE of one family, and one of those that are alike in all but name."""
    families: dict[int, int] = {}
    kinds: set[tuple[object, ...]] = set()
    shown: list[int] = []
    for index, family in enumerate(listed.rows.family.tolist()):
        kind = _kind(listed, index)
        if families.get(family, 0) < ALIKE and kind not in kinds and len(shown) < top:
            families[family] = families.get(family, 0) + 1
            shown.append(index)
        kinds.add(kind)
    return np.array(shown, dtype=np.int64)


def _kind(listed: _Listed, index: int) -> tuple[object, ...]:
    """Equal for layouts that print the same time and memory and differ in what then makes none.

    That is: context for data ranks, ZeRO-2 for ZeRO-1 in a pipeline, another number of stages a rank.
    """
    x = listed.rows.layout(index)
    replicas = x.replicate if x.shard > 1 else 1
    stage = 1 if x.zero_stage == 2 and x.pipeline > 1 else x.zero_stage
    split = (x.data * x.context, replicas, stage, x.tensor, x.sequence_parallel, x.expert)
    stages = (x.pipeline, x.schedule if x.pipeline > 1 else SCHEDULES[0])
    seconds, reserved = _printed(np.array([listed.seconds[index], listed.rows.reserved[index]])).tolist()
    return (*split, *stages, x.recompute, x.offload, f"{seconds:.3g}", f"{reserved:.3g}")


def _best_of(question: Question, runtime: str, *lists: _Listed) -> RuntimeBest:
    """The first layout that the runtime runs, of the first list that has one."""
    for listed in lists:
        runs = np.flatnonzero(listed.rows.runtimes & runtime_bit(runtime))
        if runs.size:
            return RuntimeBest(runtime, _point(question, listed, int(runs[0])))
    return RuntimeBest(runtime, None)


def _beaten(question: Question, listed: _Listed) -> ParetoPoint | None:
    """The best layout, where the first one is not it, as printed."""
    best = int(np.argmin(listed.printed)) if len(listed.rows) else 0
    return _point(question, listed, best) if best and listed.printed[best] < listed.printed[0] else None


def _point(question: Question, listed: _Listed, index: int) -> ParetoPoint:
    reserved = float(listed.rows.reserved[index])
    layout = format_layout(listed.rows.layout(index))
    known = verdict(reserved, question.cluster.device.memory_bytes)
    return ParetoPoint(layout, float(listed.seconds[index]), reserved, known)
