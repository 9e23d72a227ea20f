"""Ends of processes as a topic of a diagnosis."""

from __future__ import annotations

from collections.abc import Iterator

from meshwright.diagnose.ends.facts import Ends
from meshwright.diagnose.ends.read import collect
from meshwright.diagnose.ends.rule import find_exceptions, find_exits, find_limits
from meshwright.diagnose.facts import Facts
from meshwright.diagnose.topic import Topic


def _checked(facts: Facts) -> Iterator[str]:
    ends = facts.of(Ends)
    if ends.raised or ends.exits:
        yield f"{len(ends.raised)} exceptions and {len(ends.exits)} reports of failed processes"


ENDS = Topic(
    "ends", rules=(find_exceptions, find_exits, find_limits), checked=_checked, collect=collect, last_resort=True
)
