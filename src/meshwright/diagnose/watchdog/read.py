"""Lines of the watchdog, in the three forms that PyTorch has had (ProcessGroupNCCL.cpp, torch 1.8 to 2.13).

`WorkNCCL(OpType=…` until 1.12, then with `SeqNum=`, then with `NumelIn=`; the state of a group as `[PG 0 Rank 2]
Timeout at NCCL work: 19, last enqueued NCCL work: 19, …` (2.3), `… detected by watchdog at work: 808, …` (2.5) and
`… at work sequence id: 808 PG status: last enqueued work: …` (2.6).
"""

from __future__ import annotations

import re

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.logs.line import Line, holds
from meshwright.diagnose.watchdog.agreement_lines import collect_agreement
from meshwright.diagnose.watchdog.doing import collect_doing
from meshwright.diagnose.watchdog.facts import Group, Place, State, Stuck, Timeout, Watchdog, add

_KEYS = ("CCL(", "ast enqueued", "watchdog got stuck", "monitoredBarrier", "Detected mismatch")
"""One of them is in every line of the watchdog and of the checks. Looking for plain texts keeps reading fast."""
_CLOSED_KEYS = ("remote process exited", "Connection ", "ncclRemoteError", "communicator was aborted")
_STORE_KEYS = ("TCPStore", "SocketImpl", "recvValue", "socket.cpp")
"""The store's connections are closed at the end of healthy jobs too."""
_WORLD_KEYS = ("orld_size", "orld size", "WORLD_SIZE", "processes", "MEMBER: ")
KIND = "log"
DEFAULT = Group("default", "the default group", sure=True)

_WORK = re.compile(r"Work\w*CCL\((.{0,400}?)Timeout ?\(ms\)=(\d{1,15})\)\)? ran for (\d{1,15}) ?(?:milliseconds|ms)")
_SEQUENCE, _OPERATION = re.compile(r"SeqNum=(\d{1,18})"), re.compile(r"OpType=(\w+)")
_IN, _OUT = re.compile(r"NumelIn=(\d{1,18})"), re.compile(r"NumelOut=(\d{1,18})")
_GROUP = re.compile(
    r"\[PG (?:ID )?(?P<id>\d{1,9})(?: PG GUID (?P<guid>[^\s(\]]+)(?:\((?P<name>[^)]*)\))?)? Rank (?P<rank>\d{1,9})\]"
)
_IN_GROUP = re.compile(r"\[Rank (\d{1,9})\]")
_IN_JOB = re.compile(r"\[rank=?(\d{1,9})[\]\[ ]")
_ENQUEUED = re.compile(r"last enqueued (?:\w+ )?work: ?(-?\d{1,18})", re.IGNORECASE)
_COMPLETED = re.compile(r"last completed (?:\w+ )?work: ?(-?\d{1,18})", re.IGNORECASE)
_AT = re.compile(r"(?:timeout at \w+ work|watchdog at work(?: sequence id)?): ?(\d{1,18})", re.IGNORECASE)
_STUCK = re.compile(r"watchdog got stuck for (\d{1,9}) seconds")
_CLOSED = re.compile(
    r"remote process exited|Connection (?:closed by peer|reset by peer|closed by remote)|ncclRemoteError"
    r"|communicator was aborted",
    re.IGNORECASE,
)
_WORLD = re.compile(
    r"(?:WORLD_SIZE|[Ww]orld[ _]?[Ss]ize)['\"]?\s*[:=]\s*(\d{1,6})|Starting with (\d{1,6}) processes"
    r"|MEMBER: \d+/(\d{1,6})|[Nn]um_processes['\"]?\s*[:=]\s*(\d{1,6})"
)


def collect(line: Line, facts: Facts) -> str:
    """Takes what a line says of a hang."""
    known, text = facts.of(Watchdog), line.text
    if holds(text, _KEYS) and _of_watchdog(line, known):
        return KIND
    if holds(text, _CLOSED_KEYS) and _CLOSED.search(text) and not holds(text, _STORE_KEYS):
        add(known.closed, line)
        return KIND
    collect_doing(line, known)
    if holds(text, _WORLD_KEYS) and (found := _WORLD.search(text)):
        known.world = max(known.world, *(int(one) for one in found.groups() if one))
    return ""


def _of_watchdog(line: Line, known: Watchdog) -> bool:
    """Whether the line is one of the watchdog's or of a check's, and then it is kept."""
    text = line.text
    if (found := _WORK.search(text)) is not None:
        add(known.timeouts, _timeout(line, found))
    elif (enqueued := _ENQUEUED.search(text)) and (completed := _COMPLETED.search(text)):
        at = _AT.search(text)
        add(known.states, State(line, place_of(line), int(at[1]) if at else None, int(enqueued[1]), int(completed[1])))
    elif (stuck := _STUCK.search(text)) is not None:
        add(known.stuck, Stuck(line, place_of(line), float(stuck[1])))
    else:
        return collect_agreement(line, known)
    return True


def place_of(line: Line) -> Place:
    """Who printed the line, in the job and in the group."""
    job, own = _IN_JOB.search(line.text), _IN_GROUP.search(line.text)
    # A line that begins with `[Rank r]` was taken for rank r of the job, which is not what the watchdog means.
    told = None if own is not None and line.text.lstrip().startswith(own[0]) else line.rank
    rank = int(job[1]) if job else told
    if (found := _GROUP.search(line.text)) is None:
        return Place(rank, int(own[1]) if own else None, None)
    return Place(rank, int(found["rank"]), _group(found["id"], found["guid"], found["name"]))


def _group(number: str, guid: str | None, name: str | None) -> Group:
    if name == "default_pg" or (guid is None and number == "0") or (guid == "0" and not name):
        return DEFAULT
    if guid is None:
        return Group(f"number {number}", f"group {number}", sure=False)
    described = f" ({name})" if name and name != "undefined" else ""
    return Group(f"guid {guid}", f"group {guid}{described}", sure=True)


def _timeout(line: Line, found: re.Match[str]) -> Timeout:
    body = found[1]
    sequence, operation = _SEQUENCE.search(body), _OPERATION.search(body)
    elements_in, elements_out = _IN.search(body), _OUT.search(body)
    return Timeout(
        line, place_of(line),
        int(sequence[1]) if sequence else None,
        operation[1] if operation else "",
        int(elements_in[1]) if elements_in else None,
        int(elements_out[1]) if elements_out else None,
        int(found[2]) / 1e3, int(found[3]) / 1e3,
    )  # fmt: skip
