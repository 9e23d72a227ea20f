"""Which Finding comes first: the earliest cause over all ranks; what follows from it comes later."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from meshwright.diagnose.finding import CERTAIN, ERROR, INFO, LIKELY, POSSIBLE, WARNING, Evidence, Finding

MOST_EVIDENCE = 8
HANGS = frozenset({
    "rank_conditional_collective", "uneven_inputs", "mismatched_collectives", "p2p_ordering", "compile_skew",
    "long_non_collective_section", "watchdog_heartbeat", "concurrent_communicators",
})  # fmt: skip
"""Categories that are one incident, seen in dumps or in logs, if they name the same ranks."""
_SEVERITY = {ERROR: 0, WARNING: 1, INFO: 2}
_CONFIDENCE = {CERTAIN: 0, LIKELY: 1, POSSIBLE: 2}


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings that say the same once, the most important first.

    A consequence never comes before a cause. Among causes: errors, then the surer, then the more specific, then the
    earlier.
    """
    kept: list[Finding] = []
    told: set[tuple[str, str, int]] = set()
    for one in sorted(_merged(findings), key=_key):
        # Two rules that read the same line say the same in other words: the first is the surer, or knows more.
        lines = {(one.category, seen.path, seen.line) for seen in one.evidence if seen.line is not None}
        same = next((at for at, before in enumerate(kept) if _same_advice(one, before)), None)
        if same is not None:
            kept[same] = _joined(kept[same], one)
        elif not (lines and lines <= told) and not any(_repeats(one, before) for before in kept):
            kept.append(one)
        told |= lines
    return tuple(kept)


def _same_advice(one: Finding, before: Finding) -> bool:
    """Whether `one` is a weaker sign of what `before` tells: of the same kind, with the same to change."""
    return (
        one.category == before.category
        and bool(one.change)
        and one.change == before.change
        and one.weight < before.weight
        and one.consequence == before.consequence
    )


def _repeats(one: Finding, before: Finding) -> bool:
    """Whether `one` tells again, less surely, of the hang that `before` tells of."""
    both_hang = one.category in HANGS and before.category in HANGS
    return (
        both_hang and bool(one.ranks) and one.ranks == before.ranks and before.confidence == CERTAIN != one.confidence
    )


def _key(one: Finding) -> tuple[int, int, int, int, float]:
    return (
        int(one.consequence) + 2 * int(one.severity == INFO),
        _SEVERITY[one.severity],
        _CONFIDENCE[one.confidence],
        -one.weight,
        float("inf") if one.when is None else one.when,
    )


def _merged(findings: Iterable[Finding]) -> Sequence[Finding]:
    """One Finding for each category and cause, with the ranks and the evidence of all."""
    found: dict[tuple[str, str], Finding] = {}
    for one in findings:
        before = found.get((one.category, one.cause))
        found[one.category, one.cause] = one if before is None else _joined(before, one)
    return list(found.values())


def _joined(a: Finding, b: Finding) -> Finding:
    moments = [one.when for one in (a, b) if one.when is not None]
    surer = min(a, b, key=lambda one: _CONFIDENCE[one.confidence])
    evidence: dict[Evidence, None] = dict.fromkeys((*a.evidence, *b.evidence))
    return replace(
        surer,
        ranks=tuple(sorted({*a.ranks, *b.ranks})),
        evidence=tuple(evidence)[:MOST_EVIDENCE],
        when=min(moments, default=None),
    )
