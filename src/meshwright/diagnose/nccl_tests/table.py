"""The table that nccl-tests prints on the terminal, of all its generations.

What changed over the years: `error` became `#wrong`; `root` was added; either may be missing, and so may the in-place
half; per-iteration figures and a time stamp may follow; `on HOST` may be left out of the rank lines. So columns are
found by the header's names, counted from the right end of a line. Launchers put `3: ` or `[1,0]<stdout>:` before lines,
and libraries print between them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from meshwright.diagnose.nccl_tests.report import ReadError, Report, Timed, program_of

RANK = re.compile(
    r"#\s+Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+(?:on\s+(\S+)\s+)?device\s+\d+\s+\[[^\]]*\]\s*(.*)"
)
BEGIN = re.compile(r"#\s*nThread\s")
HEADER = re.compile(r"#\s+(size|bytes)\s.*\bbusbw\b.*")
UNITS = re.compile(r"#.*\((us|ms|s)\).*\((GB|MB)/s\)")
BOUNDS = re.compile(r"#\s*(?:Out of bounds values|Errors with asterisks[^:]*)\s*:\s*(\d+)\s*(OK|FAILED)?")
ITERATIONS = re.compile(r"\biters:\s*(\d+)")
PREFIX = re.compile(r"^(?:\[[^\]]*\]\s*<std(?:out|err)>\s*:?\s*|\s*\d+:\s+(?=#|\s*\d))")
LINE = re.compile(r"^\s*\d+\s+\d+\s+[A-Za-z]\w*\s")
BEFORE = ("size", "bytes", "count", "N", "type", "redop", "op", "root")
"""Names of the columns that no place (out-of or in) has."""
PER_S, SECONDS = {"GB": 1e9, "MB": 1e6}, {"us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass
class _Draft:
    """A test while its lines are read."""

    program: str = ""
    iterations: int = 0
    names: list[str] = field(default_factory=list)
    time_unit: float = 1e-6
    rate_unit: float = 1e9
    hosts: dict[int, str] = field(default_factory=dict)
    device: str = ""
    lines: list[Timed] = field(default_factory=list)
    out_of_bounds: int = 0

    @property
    def begun(self) -> bool:
        return bool(self.hosts or self.lines or self.names)

    def report(self) -> Report:
        hosts = tuple(self.hosts[rank] for rank in sorted(self.hosts))
        return Report(self.program, hosts, self.device, self.iterations, tuple(self.lines), self.out_of_bounds)


def read_table(text: str, where: str) -> list[Report]:
    """Every test of the text that has a line of figures. Raises ReadError for a line that cannot be a test's."""
    drafts = [_Draft()]
    for number, raw in enumerate(text.splitlines(), 1):
        line = PREFIX.sub("", raw, count=1)
        if BEGIN.match(line) and drafts[-1].begun:
            # What is said before the first line of a test's header (the command) belongs to it.
            drafts.append(_Draft())
        if drafts[-1].lines and program_of(line):
            drafts.append(_Draft())  # the command of the next test, or a test's last line
        _take(drafts[-1], line, f"{where}, line {number}")
    return [draft.report() for draft in drafts if draft.lines]


def _take(draft: _Draft, line: str, where: str) -> None:
    if named := program_of(line):
        draft.program = named
    if found := ITERATIONS.search(line):
        last = [int(n) for n in ITERATIONS.findall(line)]
        draft.iterations = last[1] if "warmup" in line and len(last) > 1 else int(found[1])
    if found := RANK.match(line):
        draft.hosts[int(found[1])] = found[2] or ""
        draft.device = draft.device or found[3].strip()
    elif HEADER.match(line):
        draft.names = line.replace("#wrong", "wrong").lstrip("# ").split()
    elif found := UNITS.match(line):
        draft.time_unit, draft.rate_unit = SECONDS[found[1]], PER_S[found[2]]
    elif found := BOUNDS.match(line):
        draft.out_of_bounds = max(int(found[1]), int(found[2] == "FAILED"))
    elif draft.names and LINE.match(line):
        draft.lines.append(_timed(draft, line.split(), where))


def _timed(draft: _Draft, words: Sequence[str], where: str) -> Timed:
    columns = [name for name in draft.names if name not in BEFORE and name != "timestamp"]
    words = words[:-2] if "timestamp" in draft.names else words
    places = max(columns.count("busbw"), 1)
    width = len(columns) // places
    names = columns[:width]
    figures = list(words[3:])[-width * places :]
    if len(figures) < width * places:
        figures = list(words[3:])[-width:]  # a replayed trace has the in-place half alone
    halves = [figures[at : at + width] for at in range(0, len(figures), width)]
    try:
        read = [_half(dict(zip(names, half, strict=True)), draft) for half in halves]
        return _fastest(int(words[0]), read)
    except (ValueError, KeyError) as error:
        raise ReadError(f"{where}: {' '.join(words)[:80]!r} is no line of an nccl-tests table.") from error


def _half(cells: dict[str, str], draft: _Draft) -> tuple[float, float, float, float | None]:
    time = cells.get("time", cells.get("cputime", ""))
    check = cells.get("wrong", cells.get("error", cells.get("res", "N/A")))
    wrong = None if check == "N/A" else float(check)
    return (
        float(time) * draft.time_unit,
        float(cells["algbw"]) * draft.rate_unit,
        float(cells["busbw"]) * draft.rate_unit,
        wrong if "wrong" in cells or wrong is None else 0.0,  # `error` is a rounding error, no count
    )


def _fastest(size: int, halves: Sequence[tuple[float, float, float, float | None]]) -> Timed:
    seconds, algorithm, bus, _ = min(halves, key=lambda half: half[0])
    wrong = [half[3] for half in halves if half[3] is not None]
    return Timed(size, seconds, algorithm, bus, max(wrong) if wrong else None)
