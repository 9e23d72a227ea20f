"""Report: one test of nccl-tests as it was printed, before anything is inferred."""

from __future__ import annotations

import re
from dataclasses import dataclass

from meshwright.spec.collective import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, BROADCAST, REDUCE_SCATTER, SEND
from meshwright.spec.errors import RequestError

PROGRAMS = {
    "all_reduce": ALL_REDUCE,
    "all_gather": ALL_GATHER,
    "reduce_scatter": REDUCE_SCATTER,
    "alltoall": ALL_TO_ALL,
    "broadcast": BROADCAST,
    "sendrecv": SEND,
}
"""nccl-tests' programs by the start of their name, which ends in `_perf`."""
OTHERS = ("reduce", "gather", "scatter", "hypercube", "alltoallv")
"""Programs that no layout here uses."""
_NAMED = re.compile(rf"({'|'.join((*PROGRAMS, *OTHERS))})_perf")


class ReadError(RequestError):
    """A file that is no output of nccl-tests, or one that says too little."""


@dataclass(frozen=True, slots=True)
class Timed:
    """One line of the table."""

    bytes: int
    seconds: float
    """The mean over the iterations, of the faster of out-of-place and in-place."""
    algorithm_bytes_per_s: float
    bus_bytes_per_s: float
    wrong: float | None
    """Elements that were wrong; None: not checked."""


@dataclass(frozen=True, slots=True)
class Report:
    """One test."""

    program: str
    """`all_reduce`, …; "": the output does not say."""
    hosts: tuple[str, ...]
    """Of each rank; "": not said."""
    device: str
    iterations: int
    lines: tuple[Timed, ...]
    out_of_bounds: int
    """Values that the check found wrong."""


def program_of(text: str) -> str:
    """`all_reduce` of `./build/all_reduce_perf_mpi`; "" where no program of nccl-tests is named."""
    found = _NAMED.search(text)
    return found[1] if found else ""
