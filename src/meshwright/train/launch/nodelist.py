"""Slurm's short forms: lists of hosts (`node[01-04,7],gpu-a`) and counts by node (`4(x2),3`).

The forms are those of Slurm's manual pages: hostlist expressions (scontrol), SLURM_TASKS_PER_NODE (srun).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from meshwright.train.launch.errors import LaunchError

_ENTRY = re.compile(r"(?:[^\[\],]|\[[^\[\]]*\])+")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_COUNT = re.compile(r"(\d+)(?:\(x(\d+)\))?")
MOST_HOSTS = 100_000
"""More hosts in one range is no cluster."""
EXAMPLE = "node[01-04,7],gpu-a"


def hosts(nodelist: str) -> Iterator[str]:
    """The hosts of a nodelist, in order; leading zeros are kept. Raises LaunchError for anything else."""
    entries = _ENTRY.findall(nodelist)
    if not entries or ",".join(entries) != nodelist:
        raise _unreadable(nodelist)
    for entry in entries:
        parts = re.split(r"\[(.*?)\]", entry)
        # Texts stand at even places, bracketed lists at odd ones.
        choices = [_numbers(part, nodelist) if place % 2 else [part] for place, part in enumerate(parts)]
        yield from map("".join, itertools.product(*choices))


def first_host(nodelist: str) -> str:
    """The first host of a nodelist: Slurm starts rank 0 there."""
    return next(hosts(nodelist))


def tasks_of_node(counts: str, node: int) -> int:
    """Tasks on node number `node` by an expression such as `4(x2),3`: 4, 4 and 3. Raises LaunchError."""
    left = node
    for part in counts.split(","):
        match = _COUNT.fullmatch(part.strip())
        if match is None:
            raise LaunchError(f"SLURM_STEP_TASKS_PER_NODE={counts!r} is not a list of counts.", ("4(x2),3",))
        times = int(match[2] or 1)
        if left < times:
            return int(match[1])
        left -= times
    raise LaunchError(f"SLURM_STEP_TASKS_PER_NODE={counts!r} has no node {node}, which SLURM_NODEID names.")


def _numbers(text: str, nodelist: str) -> list[str]:
    numbers: list[str] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise _unreadable(nodelist)
        low, high = int(match[1]), int(match[2] or match[1])
        if not low <= high < low + MOST_HOSTS:
            raise _unreadable(nodelist)
        numbers += [f"{number:0{len(match[1])}d}" for number in range(low, high + 1)]
    return numbers


def _unreadable(nodelist: str) -> LaunchError:
    return LaunchError(f"SLURM_STEP_NODELIST={nodelist!r} is not a list of hosts.", (EXAMPLE,))
