"""A line of a log, without its colours, and with what its prefixes say: the rank, the time."""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Iterable
from dataclasses import dataclass

LONGEST = 4000
"""Characters of a line that are looked at."""
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_RANKS = re.compile(
    r"\s*(?:\[(?:rank|default|trainer|worker|Rank |rank )(\d+)(?:\|\d+)?\]\s*:?"  # torch, torchrun
    r"|\[(?:[\w.-]+:)?(\d+)\]:(?=\s|$)|\[\d+,(\d+)\]<std(?:out|err)>:?"  # torchrun's --tee, mpirun
    r"|(\d{1,6}):\s(?=\S)|\((?:RANK|rank|Rank) ?(\d+)\))"  # srun --label
)
_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?")
_GLOG = re.compile(r"\[[EWIF](\d?\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d+)")
_FILE_RANKS = (
    re.compile(r"rank[_\-.= ]?(\d+)", re.IGNORECASE),
    re.compile(r"attempt_\d+/(\d+)/"),  # torchrun's log directory
    re.compile(r"(?:^|[/_.-])(?:worker|proc|process|trainer|task)[_\-.]?(\d+)(?:[/_.-]|$)"),
)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a log."""

    path: str
    number: int
    """From 1."""
    text: str
    """Without colours and line end."""
    rank: int | None
    """Of the process that wrote it, in the whole job, as far as the prefix or the file's name say so."""
    year: int
    """Of the file: it completes dates that have none."""

    @property
    def when(self) -> float | None:
        """Seconds since the epoch, as if the log's clock were UTC; None: not said."""
        return time_of(self.text, self.year)


def line_of(path: str, number: int, raw: str, rank_of_file: int | None, year: int) -> Line:
    """A line as it was read."""
    text = raw[:LONGEST].rstrip("\r\n")
    if "\x1b" in text:
        text = _COLOURS.sub("", text)
    found = _RANKS.match(text)
    rank = next((int(one) for one in found.groups() if one), None) if found else None
    return Line(path, number, text, rank_of_file if rank is None else rank, year)


def time_of(text: str, year: int) -> float | None:
    """The moment that a line names, in seconds since the epoch as if it were UTC."""
    if found := _ISO.search(text):
        parts = [int(one) for one in found.groups()[:6]]
        fraction = float(f"0.{found[7]}") if found[7] else 0.0
    elif found := _GLOG.search(text):
        parts = [year, *(int(one) for one in found.groups()[:5])]
        fraction = float(f"0.{found[6]}")
    else:
        return None
    if not (1 <= parts[1] <= 12 and 1 <= parts[2] <= 31):
        return None
    return timegm((*parts, 0, 0, 0)) + fraction


def holds(text: str, keys: Iterable[str]) -> bool:
    """Whether one of some plain texts is in a text. Every line is asked so before any regular expression."""
    for key in keys:  # noqa: SIM110 (a generator takes twice the time)
        if key in text:
            return True
    return False


def rank_in_path(path: str) -> int | None:
    """The rank that a file's name or its folders tell, the innermost first."""
    for pattern in _FILE_RANKS:
        if found := pattern.findall(path):
            return int(found[-1])
    return None
