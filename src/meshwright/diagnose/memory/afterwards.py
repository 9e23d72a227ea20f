"""Whether a run went on after a line that tells of a failure: what was caught and tried again ended nothing.

Steps that follow in the same file prove it, unless a process ended between or the steps begin anew: that is a restart.
Python prints what it has buffered when it ends, so that old steps may follow the traceback of a failure that was not
caught: there the steps after must be later ones than those before.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.logs.line import Line
from meshwright.diagnose.memory.facts import MemoryFacts
from meshwright.diagnose.metrics.series import Point, Run, runs

STEPS = 2
"""That must follow: ranks that wait for a failed one may still print the step that they are in."""


def went_on(facts: Facts, line: Line, traced: bool = False) -> bool:
    """Whether training steps of the same run follow. `traced`: a traceback ends in the line."""
    return any(_follow(facts, run, line, traced) for run in runs(facts) if run.path == line.path)


def _follow(facts: Facts, run: Run, line: Line, traced: bool) -> bool:
    if not run.counted:
        return False
    start = bisect_left(run.points, line.number, key=_line)
    before, after = (
        run.points[max(start - 1, 0) : start],
        run.points[bisect_right(run.points, line.number, key=_line) :],
    )
    if len(after) < STEPS or (traced and not before):
        return False
    steps = [point.step for point in (*before, *after[:STEPS])]
    return all(a < b for a, b in pairwise(steps)) and not _ended(facts.of(MemoryFacts), line, after[0].line or 0)


def _line(point: Point) -> int:
    return point.line or 0


def _ended(found: MemoryFacts, line: Line, until: int) -> bool:
    """Whether a process ended between a line and another one of its file."""
    exits = [one.line for one in found.kills if one.how == "exit"] + found.other_exits
    return any(one.path == line.path and line.number < one.number < until for one in exits)
