"""Hangs as logs tell them, as a topic of a diagnosis."""

from __future__ import annotations

from collections.abc import Iterator

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.topic import Topic
from meshwright.diagnose.watchdog.agreement import find_disagreements
from meshwright.diagnose.watchdog.alone import find_alone
from meshwright.diagnose.watchdog.desync import find_desync
from meshwright.diagnose.watchdog.facts import Watchdog
from meshwright.diagnose.watchdog.read import collect


def _checked(facts: Facts) -> Iterator[str]:
    known = facts.of(Watchdog)
    if known.timeouts or known.states:
        yield (
            f"{len(known.timeouts)} timeouts and {len(known.states)} states of the watchdog: operation, size and "
            "number of the same group on all ranks"
        )


def _missing(facts: Facts) -> Iterator[str]:
    known = facts.of(Watchdog)
    if known.timeouts and not known.states:
        yield "how far each rank was in each group (torch from 2.3 on prints it)"
    absent = sorted(set(range(min(known.world, 4096))) - {rank for one in facts.inputs for rank in one.ranks})
    if known.timeouts and absent and known.world > 1:
        shown = ", ".join(map(str, absent[:16])) + (" …" if len(absent) > 16 else "")
        yield f"lines of ranks {shown} (of {known.world})"


WATCHDOG = Topic(
    "timeouts", rules=(find_disagreements, find_desync, find_alone), checked=_checked, missing=_missing,
    collect=collect,
)  # fmt: skip
