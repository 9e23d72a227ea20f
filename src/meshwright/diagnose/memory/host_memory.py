"""Host memory: a kernel, a scheduler or a container killed a process, or an allocation of the host failed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from meshwright.diagnose.configuration.settings import job_at
from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import CERTAIN, ERROR, INFO, LIKELY, POSSIBLE, WARNING, Evidence, Finding
from meshwright.diagnose.logs.cited import earliest, evidence
from meshwright.diagnose.logs.late import Late
from meshwright.diagnose.logs.line import Line
from meshwright.diagnose.memory import advice
from meshwright.diagnose.memory.afterwards import went_on
from meshwright.diagnose.memory.facts import Kill, MemoryFacts
from meshwright.diagnose.memory.job import job_of
from meshwright.diagnose.memory.sizes import shown

GROWTH, FEWEST_SIZES = 1.3, 6
"""Last over first size of a leak, and sizes that are needed: less is a cache that fills."""
RISING = 0.8
"""Of the steps between sizes: a leak rises nearly always."""
LATE_GROWTH = 1.1
"""Last over middle size: a start-up grows early only."""
_OURS = Late(r"python|pt_main|pt_data|torchrun|deepspeed|accelerate|ray::|train|mpi|^$", re.IGNORECASE)
_TOLD = {
    "kernel": ("The kernel ran out of memory and killed {name}.", CERTAIN, 5),
    "slurm": ("Slurm killed the step because it used more host memory than the job asked for.", CERTAIN, 4),
    "container": ("The container was killed at its memory limit (exit code 137 is SIGKILL).", LIKELY, 3),
    "worker": ("A DataLoader worker was killed (SIGKILL): the host or the container had no memory left.", LIKELY, 3),
    "alloc": ("The host could not give memory: {name}.", LIKELY, 3),
}


def find_kills(facts: Facts) -> Iterator[Finding]:
    """What the lines about killed processes say."""
    found = facts.of(MemoryFacts)
    named = {how: [_of_job(one, facts) for one in found.kills if one.how == how] for how in _TOLD}
    for how, kills in named.items():
        if kills:
            yield _named(how, kills, facts)
    exits = _global([one for one in found.kills if one.how == "exit"])
    if exits and not any(named[how] for how in ("kernel", "slurm", "container")):
        yield from _unexplained(exits, facts)


def _of_job(one: Kill, facts: Facts) -> Kill:
    """Slurm's task is a rank, unless each task is a launcher that starts several."""
    launcher = one.local and job_at(facts, one.line.path).number("nproc") > 1
    return replace(one, rank=None) if launcher else one


def _global(exits: Sequence[Kill]) -> list[Kill]:
    """Exits without ranks of a node where the launcher's report of the same file tells those of the job."""
    reported = {one.line.path for one in exits if one.rank is not None and not one.local}
    return [replace(one, rank=None) if one.local and one.line.path in reported else one for one in exits]


def find_growth(facts: Facts) -> Iterator[Finding]:
    """Host memory that grows from step to step."""
    found = facts.of(MemoryFacts)
    for (_, rank), sizes in found.host_sizes.items():
        if grows([size for _, size in sizes]):
            first, last = sizes[0], sizes[-1]
            yield Finding(
                "host_oom", WARNING, LIKELY if found.kills else POSSIBLE, () if rank is None else (rank,),
                f"Host memory grew from {shown(first[1])} to {shown(last[1])} over {len(sizes)} readings: "
                "something is kept.",
                (evidence(first[0]), evidence(last[0])), "The resident size of each rank and worker over time.",
                advice.HOST_GROWS, last[0].when, weight=2,
            )  # fmt: skip


def grows(sizes: Sequence[float]) -> bool:
    """Whether readings of a size rise as a leak's do."""
    if len(sizes) < FEWEST_SIZES or sizes[0] <= 0:
        return False
    pairs = list(pairwise(sizes))
    return (
        sizes[-1] >= GROWTH * sizes[0]
        and sizes[-1] >= LATE_GROWTH * sizes[len(sizes) // 2]
        and sum(b >= a for a, b in pairs) >= RISING * len(pairs)
    )


def _grew(found: MemoryFacts) -> bool:
    return bool(found.growing) or any(grows([size for _, size in sizes]) for sizes in found.host_sizes.values())


def _named(how: str, kills: Sequence[Kill], facts: Facts) -> Finding:
    text, confidence, weight = _TOLD[how]
    name = next((one.said for one in kills if one.said), "a process")
    if how == "kernel" and confidence == CERTAIN and not _OURS.search(name):
        confidence, weight = POSSIBLE, 2
    if how == "kernel" and any(_is_limit(one.line.text) for one in kills):
        text = "The job's memory limit (cgroup) was reached, and the kernel killed {name}."
    if how == "container" and all("137" in one.line.text and "OOM" not in one.line.text for one in kills):
        confidence = POSSIBLE
    if how == "alloc":
        name = kills[0].line.text.strip()[:120]
    known = _who(kills, facts)
    cause = text.format(name=name) + (f" It was {known}." if known else "")
    found = _finding(cause, confidence, weight, kills, facts)
    if all(went_on(facts, one.line) for one in kills):
        cause = f"{cause} Steps follow it, so that the job went on."
        return replace(found, severity=INFO, confidence=POSSIBLE, cause=cause)
    return found


def _is_limit(text: str) -> bool:
    return "Memory cgroup out of memory" in text or "CONSTRAINT_MEMCG" in text


def _who(kills: Sequence[Kill], facts: Facts) -> str:
    """`rank 3 of 8 on node-a`, as far as one rank and one host are told; "" otherwise."""
    ranks = {one.rank for one in kills if one.rank is not None}
    hosts = {one.host for one in kills if one.host}
    world = job_of(facts, kills[0].line.path).world
    rank = ranks.pop() if len(ranks) == 1 else None
    told = "" if rank is None else f"rank {rank}{f' of {world}' if world > max(rank, 1) else ''}"
    where = f"on {hosts.pop()}" if len(hosts) == 1 else ""
    return " ".join(part for part in (told, where) if part)


def _unexplained(exits: Sequence[Kill], facts: Facts) -> Iterator[Finding]:
    """SIGKILL alone: no CUDA text, no reason. A scheduler or a person kills so too, and a launcher the last ranks."""
    found = facts.of(MemoryFacts)
    if found.failures or any("LIMIT" in line.text or "PREEMPT" in line.text for line in found.other_exits):
        return
    loading = _loading(exits, found)
    told = (
        "while the model was loaded: every rank may hold a copy of it in host memory"
        if loading
        else "without an error of its own"
    )
    known = _who(exits, facts)
    who = f"{known[0].upper()}{known[1:]}" if known.startswith("rank") else f"A process{f' {known}' if known else ''}"
    yield _finding(
        f"{who} was killed (SIGKILL) {told}, as the kernel does when host memory runs out.",
        # An exit code alone does not say who sent the signal: the kernel's log does.
        POSSIBLE, 2 if not found.other_exits else 0, exits, facts,
        loading[-1:] or found.growing[:1], consequence=bool(found.other_exits),
    )  # fmt: skip


def _loading(exits: Sequence[Kill], found: MemoryFacts) -> Sequence[Line]:
    """Lines of a model that is loaded and makes no step: of the same file, of the same rank, or of all that load."""
    idle = [line for line in found.loading if line.path not in found.stepped]
    paths, ranks = {one.line.path for one in exits}, {one.rank for one in exits} - {None}
    if same := [line for line in idle if line.path in paths or line.rank in ranks]:
        return same
    return idle if len(idle) == len(found.loading) and not paths & found.stepped else ()


def _finding(
    cause: str,
    confidence: str,
    weight: int,
    kills: Sequence[Kill],
    facts: Facts,
    more: Sequence[Line] = (),
    consequence: bool = False,
) -> Finding:
    shown_lines: tuple[Evidence, ...] = tuple(evidence(one.line) for one in kills[:6])
    return Finding(
        "host_oom", ERROR, confidence, tuple(sorted({one.rank for one in kills if one.rank is not None})), cause,
        (*shown_lines, *(evidence(line) for line in more)),
        "`dmesg -T | grep -i -E 'killed process|oom'` on that node, or the limit and the peak of the job's cgroup.",
        advice.HOST_GROWS if _grew(facts.of(MemoryFacts)) else advice.HOST,
        earliest(one.line for one in kills), consequence, weight,
    )  # fmt: skip
