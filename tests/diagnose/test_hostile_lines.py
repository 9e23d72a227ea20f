"""No regular expression that lines are given to takes time that grows with more than the square of a line's length."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.logs.line import LONGEST, line_of
from meshwright.diagnose.topics import TOPICS

CPU_S = 2.0
"""What grows with the cube takes minutes for 4,000 characters; with the square, a fraction of this."""
STARTS = (
    "", "NCCL WARN connect ", "NCCL WARN RDMA ", "NET/IB : ", "must be divisible by ", "..... ", "time (ms) | ", ": (1",
    "expert [", "checkpoint state_dict ", "loss step ", "cache flushes ", "CUDA out of memory. Tried to allocate ",
    "Traceback (most recent call last): Error ", "WorkNCCL(", "last enqueued work: ", "GPU0 ", "| 0 ", "exit code ",
)  # fmt: skip
REPEATED = ("a", "1", " ", "\t", "a ", "1 ", "1,", "-", "a_", "[", "(1", "1:", "a: 1 ", "a=1 ", "|", ".", "1/")


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise AssertionError(f"more than {seconds} s")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@pytest.mark.parametrize("start", STARTS)
def test_a_line_made_to_be_slow_is_read(start: str) -> None:
    for number, piece in enumerate(REPEATED):
        for raw in (start + piece * LONGEST, (piece * (LONGEST // 2))[: LONGEST // 2] + start + piece * LONGEST):
            line = line_of("out.log", number + 1, raw, None, 2024)
            for topic in TOPICS:
                if topic.collect is not None and re.search(topic.trigger, line.text):
                    with cpu_limit(CPU_S):
                        topic.collect(line, Facts())
