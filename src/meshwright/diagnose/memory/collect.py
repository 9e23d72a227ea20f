"""Lines of logs that tell of memory, gathered into `MemoryFacts`. Every line passes here, so most leave at once."""

from __future__ import annotations

from collections import deque

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.logs.late import Late
from meshwright.diagnose.logs.line import Line, holds
from meshwright.diagnose.memory import job, killed, listing, prose
from meshwright.diagnose.memory.facts import MOST, Context, Failure, MemoryFacts, Retry
from meshwright.diagnose.memory.oom import IS_OOM, add_numbers, numbers, parse_oom
from meshwright.diagnose.memory.place import own_frames, place_of

BEFORE, AFTER = 60, 6
"""Lines of the same rank kept around an OOM: a traceback of 30 frames, and what a person or a logger adds."""
MOST_RANKS = 1024
"""Ranks of one file whose last lines are kept."""
RETRIES = Late(
    r"\b(\d{1,12}) CUDA memory allocation retries|num_?_?alloc_retries\W{0,4}[:=]\s*(\d{1,12})|"
    r"\balloc(?:ation)?[_ ]retries\W{0,4}[:=]\s*(\d{1,12})|cudaMalloc retries:\s*(\d{1,12})"
)
"""torchtitan/components/metrics.py; torch.cuda.memory_stats; composer/callbacks/memory_monitor.py; memory_summary()."""
RETRY = Late(r"memory allocation failed with OOM on device \d+")
"""torch 2.13's CUDACachingAllocator.cpp, of every failed cudaMalloc, also of those that a flush of the cache mends
(pytorch#193195)."""
KEYS = (
    "out of memory", "outofmemory", "out_of_mem", "to allocate", "allocation", "alloc_", "retries", "exceed", "exit",
    "kill", "oom", "cannot alloc", "bad_alloc", "memoryerror", "memory ", "'total_size'", "rss", "ram", " limit",
    "preempt", "virtual mem", "watchdog",
    "sigabrt", "signal 11", "logits", "checkpoint", "loading", "resum", "backward",
)  # fmt: skip
"""In lower case; a line with none of them tells nothing of memory. Looking for texts is far faster than one pattern."""
STEPS = ("step", "iter", "epoch", "'loss'")
"""One of them is in every line that tells of a step."""
LAUNCH_LINES = 20_000
"""Lines at the start of a file in which launch arguments are looked for: frameworks print them first."""


def collect(line: Line, facts: Facts) -> str:
    """Adds a line of a log; the name of its kind of file where it makes one, else ""."""
    found = facts.of(MemoryFacts)
    context = found.contexts.setdefault(line.path, Context())
    text = line.text
    if context.open:
        _follow(context, line)
    if line.rank is not None:
        ranks = found.ranks.setdefault(line.path, set())
        if len(ranks) < MOST:
            ranks.add(line.rank)
    if line.number <= LAUNCH_LINES:
        job.look(line, found)
    lower = text.lower()
    if line.path not in found.stepped and holds(lower, STEPS):
        killed.note_step(line, found)
    told = holds(lower, KEYS) and _look(line, found, context)
    _remember(context, line)
    return "log" if told else ""


def _look(line: Line, found: MemoryFacts, context: Context) -> bool:
    """Whether the line tells something that makes a log of its file."""
    killed.note(line, found)
    told = prose.look(line, found) or listing.look(line, found)
    return _failure(line, found, context) or _retry(line, found) or killed.look(line, found) or told


def _failure(line: Line, found: MemoryFacts, context: Context) -> bool:
    if not IS_OOM.search(line.text) or RETRY.search(line.text):
        return False
    if any(one.line.rank == line.rank and _same(one, line) for one in context.open):
        return True  # the same error, printed again by the next handler
    if len(found.failures) < MOST:
        before = tuple(context.lines.get(line.rank, ()))
        texts = tuple(one.text for one in before)
        failure = Failure(line, parse_oom(line.text), texts, frames=own_frames(before))
        failure.place = place_of((*texts, line.text))
        found.failures.append(failure)
        context.open.append(failure)
    return True


def _same(one: Failure, line: Line) -> bool:
    new = parse_oom(line.text)
    return new.request is None or new == one.oom


def _follow(context: Context, line: Line) -> None:
    """Numbers that an OOM text prints on lines of their own, and frames that were pasted after it."""
    for one in context.open:
        if one.line.rank == line.rank and line.number > one.line.number:
            one.after.append(line.text)
            if numbers(line.text) and not IS_OOM.search(line.text):
                one.oom = add_numbers(one.oom, line.text)
            if not one.place.phase and not one.place.head:
                one.place = place_of((line.text,))
    context.open = [one for one in context.open if len(one.after) < AFTER and line.number - one.line.number < BEFORE]


def _remember(context: Context, line: Line) -> None:
    lines = context.lines.get(line.rank)
    if lines is None:
        if len(context.lines) >= MOST_RANKS:
            return
        lines = context.lines[line.rank] = deque(maxlen=BEFORE)
    lines.append(line)


def _retry(line: Line, found: MemoryFacts) -> bool:
    if match := RETRIES.search(line.text):
        count = next(int(one) for one in match.groups() if one)
    elif RETRY.search(line.text):
        count = None
    else:
        return False
    if len(found.retries) < MOST:
        found.retries.append(Retry(line, count))
    return True
