"""Ranges: names that a trace shows around what a step does, by phase, stage and micro-batch.

They cost nothing to speak of while nobody traces. PyTorch's profiler sees them; with `show_nvtx` Nsight does, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from meshwright.diagnose.traces.events import RANGE

Begin = Callable[[str, int | None, int | None], None]
"""Told of a range that begins: phase, stage, micro-batch."""
End = Callable[[], None]

_nvtx = False
_watcher: tuple[Begin, End] | None = None


def show_nvtx(wanted: bool) -> None:
    """Whether ranges are NVTX ranges as well (GPUs only)."""
    global _nvtx
    _nvtx = wanted and torch.cuda.is_available()


def watch(begin: Begin | None, end: End | None) -> None:
    """Have every range told when it begins and ends, profiler or not; None: nobody any more."""
    global _watcher
    _watcher = None if begin is None or end is None else (begin, end)


@contextmanager
def named(phase: str, stage: int | None = None, micro_batch: int | None = None) -> Iterator[None]:
    """A range `meshwright:PHASE [stage S] [micro-batch M]`.

    Phases: data, forward, backward, input (a stage's input gradient alone), weight, reduce, clip, optimizer, step.
    """
    if _watcher is not None:
        begin, end = _watcher
        begin(phase, stage, micro_batch)
        try:
            yield
        finally:
            end()
        return
    if not (_nvtx or torch.autograd.profiler._is_profiler_enabled):
        yield
        return
    text = RANGE + phase
    text += "" if stage is None else f" stage {stage}"
    text += "" if micro_batch is None else f" micro-batch {micro_batch}"
    if _nvtx:
        torch.cuda.nvtx.range_push(text)  # type: ignore[no-untyped-call]
    try:
        with torch.profiler.record_function(text):
            yield
    finally:
        if _nvtx:
            torch.cuda.nvtx.range_pop()  # type: ignore[no-untyped-call]
