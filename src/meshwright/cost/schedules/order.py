"""Orders that several schedules share."""

from __future__ import annotations

from collections.abc import Sequence

from meshwright.cost.schedules.action import FORWARD, Action, Cell


def one_forward_one_backward(forwards: Sequence[Action], backwards: Sequence[Action], warmup: int) -> list[Cell]:
    """`warmup` forwards, then forward and backward in turn, then the backwards that are left."""
    warmup = min(warmup, len(forwards))
    row: list[Cell] = list(forwards[:warmup])
    steady = len(forwards) - warmup
    for forward, backward in zip(forwards[warmup:], backwards[:steady], strict=True):
        row += (forward, backward)
    row += backwards[steady:]
    return row


def rounds(pipeline: int, micro_batches: int) -> int:
    """Rounds in which an interleaved schedule walks through its micro-batches; their number must divide m."""
    return max(1, micro_batches // pipeline)


def depth_first(
    rank: int, pipeline: int, micro_batches: int, virtual_stages: int, backward: str
) -> tuple[list[Action], list[Action]]:
    """The forwards and the backwards (of kind `backward`) of a rank with looped stages, round by round.

    In a round every local stage takes all of the round's micro-batches before the next stage does;
    backwards visit the stages from the last to the first.
    """
    per_round = micro_batches // rounds(pipeline, micro_batches)
    stages = range(rank, pipeline * virtual_stages, pipeline)
    starts = range(0, micro_batches, per_round)

    def walk(kind: str, order: Sequence[int]) -> list[Action]:
        return [Action(s, kind, i) for first in starts for s in order for i in range(first, first + per_round)]

    return walk(FORWARD, stages), walk(backward, stages[::-1])
