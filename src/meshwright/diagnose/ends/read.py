"""Lines that tell how a process ended.

Tracebacks are Python's (`Traceback (most recent call last):`); the report is that of torch/distributed/elastic/
multiprocessing/errors (`Root Cause (first observed failure):`); Slurm's texts are those of slurmstepd.
"""

from __future__ import annotations

import re

from meshwright.diagnose.ends.facts import MOST, Ends, Exit, Place, Raised, Trace
from meshwright.diagnose.facts import Facts
from meshwright.diagnose.logs.late import Late
from meshwright.diagnose.logs.line import Line, holds

LONGEST = 400
"""Lines of a traceback, with those of other ranks in between."""
BESIDE = 3
"""Lines from the words that an exception is ignored to its traceback."""
_IGNORED = ("Exception ignored in", "Error in atexit", "Error in sys.excepthook", "--- Logging error ---")
_KEYS = ("Error", "Exception", "Traceback (most", "Interrupt", "Logging error")
_PREFIX = re.compile(r"^(?:\s*\[(?:rank|default)\d+\]:|\s*\d{1,6}:(?=\s))+ ?")
_RAISED = Late(r"^((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt))(?:: (.*)|:?\s*$)")
_FRAME = re.compile(r'^ *File "([^"]{1,400})", line \d+')
_INSTALLED = ("site-packages/", "dist-packages/", "/lib/python", "/torch/", "<frozen", "<string>", "/bin/")
_ECHO = Late(
    r"^(?:DistBackendError|ChildFailedError|SignalException|DistStoreError|DistNetworkError|KeyboardInterrupt|"
    r"ProcessRaisedException|ProcessExitedException|CalledProcessError|BrokenPipeError|ConnectionResetError|"
    r"ConnectionRefusedError|SystemExit|RayTaskError|ActorDiedError|WorkerCrashedError)$"
)
"""What is raised because another process ended, or by a launcher."""
_ECHO_TEXT = Late(
    r"NCCL (?:error|communicator)|Connection (?:closed|reset|refused)|[Tt]imed out|[Tt]imeout|gloo|Broken pipe|"
    r"Socket closed|[Ww]atchdog|remote process exited|(?:Signal|signal) \d+ \(SIG"
)
_REPORT = "Root Cause (first observed failure)"
_RANK = Late(r"^\W*rank\s*: (\d{1,6}) \(local_rank")
_EXIT = Late(r"^\W*exitcode\s*: (-?\d{1,4}) \(pid")
_CRASH = Late(r"\b(?:Segmentation fault|Illegal instruction|Floating point exception|Bus error)\b|\(core dumped\)")
_CRASHED = ("fault", "Illegal", "exception", "Bus error", "core dumped")
_LIMIT = Late(r"DUE TO (?:TIME LIMIT|PREEMPTION|NODE FAILURE)|=>> PBS: job killed: walltime|TERM_RUNLIMIT")


def collect(line: Line, facts: Facts) -> str:
    """Takes what a line says of an end; "log" where it says something."""
    ends, text = facts.of(Ends), line.text
    place = line.path, line.rank
    if place in ends.last or len(ends.last) < MOST:
        ends.last[place] = line.number
    if place in ends.open:
        _follow(ends, place, line)
    if line.path in ends.failed or _REPORT in text:
        return _report(ends, line)
    if holds(text, _KEYS):
        return _raised(ends, place, line)
    if ("DUE TO " in text or "=>>" in text or "TERM_" in text) and _LIMIT.search(text) and len(ends.limits) < MOST:
        ends.limits.append(line)
        return "log"
    if " CANCELLED AT " in text and len(ends.cancelled) < MOST:
        ends.cancelled.append(line)
        return "log"
    if holds(text, _CRASHED) and _CRASH.search(text) and len(ends.crashes) < MOST:
        ends.crashes.append(line)
        return "log"
    return ""


def _raised(ends: Ends, place: Place, line: Line) -> str:
    if holds(line.text, _IGNORED) or "Traceback (most" in line.text:
        before = ends.open.get(place)
        ignored = before is not None and before.ignored and line.number - before.begun <= BESIDE
        if len(ends.open) < MOST:
            ends.open[place] = Trace(line.number, ignored or holds(line.text, _IGNORED))
        return "log"
    found = _RAISED.match(_PREFIX.sub("", line.text))
    if found is None:
        return ""
    trace = ends.open.pop(place, None)
    kind, said = found[1].rpartition(".")[2], (found[2] or "").strip()
    if trace is not None and trace.ignored:
        return "log"
    if len(ends.raised) < MOST and not _ECHO.match(kind) and not _ECHO_TEXT.search(said):
        ends.raised.append(Raised(line, kind, said, trace.frame if trace else "", trace is not None))
    return "log"


def _follow(ends: Ends, place: Place, line: Line) -> None:
    """The frames of a traceback; what is longer than any is none."""
    trace = ends.open[place]
    if line.number - trace.begun > LONGEST:
        del ends.open[place]
        return
    frame = _FRAME.match(_PREFIX.sub("", line.text)) if 'File "' in line.text else None
    if frame is not None and not (trace.frame and any(part in frame[1] for part in _INSTALLED)):
        trace.frame = frame[0].strip()


def _report(ends: Ends, line: Line) -> str:
    """torchrun's report: after the words, the rank, then its exit code."""
    if _REPORT in line.text:
        if len(ends.failed) < MOST:
            ends.failed[line.path] = None
    elif rank := _RANK.match(line.text):
        ends.failed[line.path] = int(rank[1])
    elif code := _EXIT.match(line.text):
        if len(ends.exits) < MOST:
            ends.exits.append(Exit(line, ends.failed[line.path], int(code[1])))
        del ends.failed[line.path]
    return "log"
