"""Ends of processes as a topic of a diagnosis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from meshwright.diagnose.ends.facts import Ends, Exit
from meshwright.diagnose.ends.read import collect
from meshwright.diagnose.ends.rule import find_ends
from meshwright.diagnose.facts import Facts
from meshwright.diagnose.logs.line import Line
from meshwright.diagnose.topic import Document, Topic
from meshwright.spec.errors import RequestError


def _checked(facts: Facts) -> Iterator[str]:
    ends = facts.of(Ends)
    if ends.raised or ends.exits:
        yield f"{len(ends.raised)} exceptions and {len(ends.exits)} reports of failed processes"


def _is_error_file(parsed: Any) -> bool:
    """What a rank of `meshwright train` or `bench` leaves that fails, and its launcher for one that was killed."""
    return isinstance(parsed, dict) and {"rank", "time", "kind", "message", "exit_code", "is_request"} <= parsed.keys()


def _read_error(parsed: Any, path: str, facts: Facts) -> int | None:
    rank, code = parsed["rank"], parsed["exit_code"]
    if not isinstance(rank, int) or not isinstance(code, int):
        raise RequestError("an error file whose rank or exit code is no number")
    if parsed["kind"] in ("signal", "exit"):
        facts.of(Ends).exits.append(Exit(Line(path, 1, f"rank {rank} {parsed['message']}", rank, 0), rank, code))
    return rank


ENDS = Topic(
    "ends", rules=(find_ends,), checked=_checked, collect=collect, last_resort=True,
    documents=(Document("error of a rank", _is_error_file, _read_error),),
)  # fmt: skip
