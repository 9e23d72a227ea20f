"""Host memory: a kernel, a scheduler or a container killed a process, or an allocation of the host failed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import CERTAIN, ERROR, LIKELY, POSSIBLE, WARNING, Evidence, Finding
from meshwright.diagnose.logs.cited import earliest, evidence
from meshwright.diagnose.logs.late import Late
from meshwright.diagnose.logs.line import Line
from meshwright.diagnose.memory import advice
from meshwright.diagnose.memory.facts import Kill, MemoryFacts
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
    named = {how: [one for one in found.kills if one.how == how] for how in _TOLD}
    for how, kills in named.items():
        if kills:
            yield _named(how, kills, found)
    exits = [one for one in found.kills if one.how == "exit"]
    if exits and not any(named[how] for how in ("kernel", "slurm", "container")):
        yield from _unexplained(exits, found)


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


def _named(how: str, kills: Sequence[Kill], found: MemoryFacts) -> Finding:
    text, confidence, weight = _TOLD[how]
    name = next((one.said for one in kills if one.said), "a process")
    if how == "kernel" and confidence == CERTAIN and not _OURS.search(name):
        confidence, weight = LIKELY, 2
    if how == "container" and all("137" in one.line.text and "OOM" not in one.line.text for one in kills):
        confidence = POSSIBLE
    if how == "alloc":
        name = kills[0].line.text.strip()[:120]
    return _finding(text.format(name=name), confidence, weight, kills, found)


def _unexplained(exits: Sequence[Kill], found: MemoryFacts) -> Iterator[Finding]:
    """SIGKILL alone: no CUDA text, no reason. A scheduler or a person kills so too, and a launcher the last ranks."""
    if found.failures or any("LIMIT" in line.text or "PREEMPT" in line.text for line in found.other_exits):
        return
    loading = found.loading and found.first_step is None
    told = (
        "while the model was loaded: every rank holds a copy in host memory"
        if loading
        else "without an error of its own"
    )
    yield _finding(
        f"A process was killed (SIGKILL) {told}, as the kernel does when host memory runs out.",
        # An exit code alone does not say who sent the signal: the kernel's log does.
        POSSIBLE, 2 if not found.other_exits else 0, exits, found,
        found.loading[-1:] if loading else found.growing[:1], consequence=bool(found.other_exits),
    )  # fmt: skip


def _finding(
    cause: str,
    confidence: str,
    weight: int,
    kills: Sequence[Kill],
    found: MemoryFacts,
    more: Sequence[Line] = (),
    consequence: bool = False,
) -> Finding:
    shown_lines: tuple[Evidence, ...] = tuple(evidence(one.line) for one in kills[:6])
    return Finding(
        "host_oom", ERROR, confidence, tuple(sorted({one.rank for one in kills if one.rank is not None})), cause,
        (*shown_lines, *(evidence(line) for line in more)),
        "`dmesg -T | grep -i -E 'killed process|oom'` on that node, or the limit and the peak of the job's cgroup.",
        advice.HOST_GROWS if _grew(found) else advice.HOST,
        earliest(one.line for one in kills), consequence, weight,
    )  # fmt: skip
