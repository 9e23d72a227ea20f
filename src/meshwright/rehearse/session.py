"""Session: several ranks of a layout, each in a process of its own.

PyTorch remembers process groups in caches of its own, so one process can be one rank only. Two run at once.
"""

from __future__ import annotations

import gc
import multiprocessing
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from meshwright.cost.wire.place import stage_ranks
from meshwright.rehearse.result import RankRehearsal
from meshwright.spec.errors import LayoutError, RequestError
from meshwright.spec.layout import Layout
from meshwright.train.config.job import Job

STAGE_FIRSTS, ALL_DISTINCT = "stage-firsts", "all-distinct"
AT_ONCE = 2


def ranks_of(layout: Layout, chosen: str) -> list[int]:
    """The ranks that `chosen` names: a number, "stage-firsts" (the first of each pipeline rank) or "all-distinct".

    Distinct are the pipeline ranks, and in each the first and the last tensor and shard rank, whose boxes may be
    shorter. Raises LayoutError for a rank that is not there, RequestError for another word.
    """
    each = stage_ranks(layout)
    firsts = [stage * each for stage in range(layout.pipeline)]
    if chosen == STAGE_FIRSTS:
        return firsts
    if chosen == ALL_DISTINCT:
        inside = dict.fromkeys((0, layout.tensor - 1, each - layout.tensor, each - 1))
        return [first + rank for first in firsts for rank in inside]
    if not chosen.isdecimal():
        raise RequestError(f"Unknown ranks {chosen[:40]!r}.", ("a number", STAGE_FIRSTS, ALL_DISTINCT))
    check_rank(layout, int(chosen))
    return [int(chosen)]


def check_rank(layout: Layout, rank: int) -> None:
    """Raises LayoutError for a rank that is not there."""
    if not 0 <= rank < layout.devices:
        raise LayoutError(f"{layout} has no rank {rank}.", (f"0 to {layout.devices - 1}",))


def rehearse_ranks(
    job: Job, ranks: Sequence[int], *, steps: int = 2, imbalance: float = 1.0, history: bool = False,
    tell: Callable[[RankRehearsal], None] | None = None,
) -> list[RankRehearsal]:  # fmt: skip
    """The rehearsals of `ranks`, in their order; `tell` hears of each as it ends.

    Raises what the program raises, and RequestError where a process ended without a word.
    """
    found: dict[int, RankRehearsal] = {}
    for rank, outcome in _outcomes(job, ranks, (steps, imbalance, history)):
        if isinstance(outcome, Exception):
            raise outcome
        found[rank] = outcome
        if tell is not None:
            tell(outcome)
    return [found[rank] for rank in ranks]


def _outcomes(
    job: Job, ranks: Sequence[int], wish: tuple[int, float, bool]
) -> Iterator[tuple[int, RankRehearsal | Exception]]:
    forked = sys.platform == "linux"
    if forked and len(ranks) > 1:
        import_all()  # once, and not in each of the processes
    context: Any = multiprocessing.get_context("fork" if forked else "spawn")
    waiting = deque(ranks)
    running: dict[Any, tuple[int, Any]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                rank = waiting.popleft()
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_rehearse, args=(theirs, job, rank, *wish), daemon=True)
                process.start()
                theirs.close()
                running[ours] = rank, process
            pipe: Any
            for pipe in wait(list(running)):
                rank, process = running.pop(pipe)
                try:
                    outcome = pipe.recv()
                except EOFError:
                    process.join()
                    outcome = RequestError(f"The rehearsal of rank {rank} ended with exit code {process.exitcode}.")
                process.join()
                yield rank, outcome
    finally:
        for _, process in running.values():
            process.kill()


def import_all() -> None:
    """Import what a rehearsal needs, PyTorch's compiler included, which its fake tensors ask for.

    Modules stay: nobody looks for garbage among them, neither while they load nor later.
    """
    wanted = gc.isenabled()
    gc.disable()
    try:
        import torch._dynamo  # noqa: F401

        import meshwright.rehearse.rank  # noqa: F401
    finally:
        if wanted:
            gc.enable()
    gc.freeze()


def _rehearse(pipe: Connection, job: Job, rank: int, steps: int, imbalance: float, history: bool) -> None:
    """One rank's process."""
    import_all()
    from meshwright.rehearse.rank import rehearse_rank

    try:
        outcome: RankRehearsal | Exception = rehearse_rank(job, rank, steps=steps, imbalance=imbalance, history=history)
    except RequestError as error:
        outcome = error
    pipe.send(outcome)
