"""Rules on ends whose reason no other rule knows."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence

from meshwright.diagnose.ends.facts import Ends, Exit, Raised
from meshwright.diagnose.facts import Facts, cited
from meshwright.diagnose.finding import CERTAIN, ERROR, INFO, LIKELY, POSSIBLE, WARNING, Finding
from meshwright.diagnose.logs.cited import earliest, evidence
from meshwright.diagnose.logs.line import Line

CATEGORY = "unknown"
"""None of the known kinds."""
FEW_LINES = 4
"""Of a text that is quoted, not a log."""
WEAKEST = -200
"""Behind what the words of a text are like."""
NEAR = 40
"""Lines of its rank after an exception that ended the process: what libraries print when they are taken down."""
KNOWN_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGABRT)
"""Signals that others send, or that a watchdog raises: other rules tell of them, or they are no cause."""
_CONFIRM = "The log of that rank from the traceback on; whether it fails at the same place again."


def find_ends(facts: Facts) -> Iterator[Finding]:
    """Why processes ended, where no cause of an error is known."""
    if not facts.settled:
        yield from _exceptions(facts)
        yield from _exits(facts)
        yield from _limits(facts)
        yield from _weak(facts)


def _exceptions(facts: Facts) -> Iterator[Finding]:
    """The exceptions that ended a process and are evidence of nothing else, the earliest first."""
    ends = facts.of(Ends)
    known = cited(facts.found)
    own = [
        one
        for one in ends.raised
        if one.traced
        and _is_last(one, ends)
        and (one.line.path, one.line.number) not in known
        and not facts.told_of(one.line.path)
    ]
    by_text: dict[tuple[str, str, str], list[Raised]] = {}
    for one in own:
        by_text.setdefault((one.kind, one.said, one.frame), []).append(one)
    for same in by_text.values():
        yield _exception(same)


def _is_last(one: Raised, ends: Ends) -> bool:
    """Whether its rank printed hardly a line after it: what is caught and logged does not end a process."""
    return ends.last.get((one.line.path, one.line.rank), one.line.number) - one.line.number <= NEAR


def _exception(same: Sequence[Raised]) -> Finding:
    first = same[0]
    ranks = tuple(sorted({one.line.rank for one in same if one.line.rank is not None}))
    who = "A process" if not ranks else f"Rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} ranks"
    where = f" ({first.frame})" if first.frame else ""
    return Finding(
        CATEGORY, ERROR, LIKELY, ranks,
        f"{who} ended with {first.kind}{f': {first.said[:160]}' if first.said else ''}{where}. That is an error of the "
        "program or its data, of no kind that is known here.",
        tuple(evidence(one.line) for one in same[:8]),
        _CONFIRM, ("Mend what the traceback shows. Timeouts and closed connections of other ranks follow from it.",),
        earliest(one.line for one in same), weight=-1,
    )  # fmt: skip


def _exits(facts: Facts) -> Iterator[Finding]:
    """The process that the launcher saw fail first, where its log does not say why."""
    ends = facts.of(Ends)
    told = {one.line.rank for one in ends.raised}
    for one in ends.exits:
        if one.rank in told or None in told or facts.told_of(one.line.path):
            continue
        if -one.code == signal.SIGKILL:
            if not ends.limits:  # else the scheduler said that it ends the job
                yield _killed(one)
        elif -one.code not in KNOWN_SIGNALS:
            yield _exit(one)


def _killed(one: Exit) -> Finding:
    who = "A process" if one.rank is None else f"Rank {one.rank}"
    return Finding(
        "host_oom", ERROR, POSSIBLE, () if one.rank is None else (one.rank,),
        f"{who} was killed (SIGKILL) and could not say why: the kernel does so when host memory runs out, a scheduler "
        "or a person may, too.",
        (evidence(one.line, one.rank),), "dmesg of its node for 'Killed process'; sacct, if Slurm ran it.",
        ("Less host memory: fewer loader workers, weights that one rank loads and sends, a larger container.",),
    )  # fmt: skip


def _exit(one: Exit) -> Finding:
    by = f"signal {-one.code}{_name(-one.code)}" if one.code < 0 else f"exit code {one.code}"
    who = "A process" if one.rank is None else f"Rank {one.rank}"
    return Finding(
        CATEGORY, ERROR, POSSIBLE, () if one.rank is None else (one.rank,),
        f"{who} failed first, by {by}, and no line that was read says why.",
        (evidence(one.line, one.rank),),
        f"The log of {who.lower()}; a core dump, where a signal ended it; dmesg of its node.",
        ("Run with PYTHONFAULTHANDLER=1, and let torchrun keep all logs: --log-dir, --tee 3.",), weight=-1,
    )  # fmt: skip


def _name(number: int) -> str:
    try:
        return f" ({signal.Signals(number).name})"
    except ValueError:
        return ""


def _limits(facts: Facts) -> Iterator[Finding]:
    """A scheduler ended the job: what follows is no fault."""
    lines = facts.of(Ends).limits
    if lines:
        first = lines[0]
        yield Finding(
            CATEGORY, WARNING, CERTAIN, (), "The scheduler ended the job: at its time limit, for another job, or as a "
            "node failed. Ends of processes and closed connections after that are consequences.",
            tuple(evidence(one) for one in lines[:4]),
            "sacct -j JOB --format=State,Elapsed,Timelimit", ("Save checkpoints often enough, and resume.",),
            first.when,
        )  # fmt: skip


def _weak(facts: Facts) -> Iterator[Finding]:
    """What ends a process and does not say why: told where nothing else is."""
    ends = facts.of(Ends)
    if any(one.severity != INFO for one in facts.found):
        return
    if ends.crashes and not ends.raised:
        yield _unclear(
            f"A process crashed ({ends.crashes[0].text.strip()[:120]}), and no line that was read says why.",
            ends.crashes,
            "A core dump: gdb python CORE, then bt; the last line of each rank before it.",
            "Run with PYTHONFAULTHANDLER=1: Python then prints where each thread was.",
        )  # fmt: skip
    elif ends.cancelled and not ends.limits:
        yield _unclear(
            "Slurm ended the job or a step of it: it was cancelled, or another task of it had failed; no line says "
            "which.", ends.cancelled, "sacct -j JOB --format=State,ExitCode,Elapsed,Timelimit",
            "Read the logs of all tasks: the first that failed is the cause.",
        )  # fmt: skip
    bare = next((one for one in ends.raised if not one.traced and _is_all(one, ends)), None)
    if bare is not None:
        yield _unclear(
            f"The text tells of {bare.kind}{f': {bare.said[:160]}' if bare.said else ''}: an error of the program or "
            "of what is installed, of no kind that is known here.", [bare.line],
            "The traceback above it.", "Mend what the traceback shows.",
        )  # fmt: skip


def _is_all(one: Raised, ends: Ends) -> bool:
    """Whether its file has hardly more than this line."""
    return all(number <= FEW_LINES for (path, _), number in ends.last.items() if path == one.line.path)


def is_unclear(one: Finding) -> bool:
    """Whether it tells that something ended, and not why."""
    return one.category == CATEGORY and one.confidence == POSSIBLE


def _unclear(cause: str, lines: Sequence[Line], confirm: str, change: str) -> Finding:
    return Finding(
        CATEGORY, WARNING, POSSIBLE, (), cause, tuple(evidence(one) for one in lines[:4]), confirm, (change,),
        earliest(lines), weight=WEAKEST,
    )  # fmt: skip
