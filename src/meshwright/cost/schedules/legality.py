"""Which micro-batch counts and stages a rank PyTorch's schedule classes take."""

from __future__ import annotations

import difflib
import itertools

from meshwright.cost.schedules.order import rounds
from meshwright.cost.schedules.placement import V_SHAPED
from meshwright.spec.errors import LayoutError
from meshwright.spec.layout import SCHEDULES

_ONE_STAGE = ("gpipe", "1f1b")
_IN_ROUNDS = ("interleaved1f1b", "interleavedzerobubble")
_RULES = {
    "1f1b": "it needs a micro-batch for every rank",
    "dualpipev": "it needs two micro-batches for every rank",
    **dict.fromkeys(_IN_ROUNDS, "the number of rounds, micro-batches // ranks, must divide the micro-batches"),
}


def takes(schedule: str, pipeline: int, micro_batches: int) -> bool:
    """Whether PyTorch's class for `schedule` accepts this many micro-batches on `pipeline` ranks.

    1f1b: m >= p. Interleaved schedules: max(1, m // p) divides m. dualpipev: m >= 2p. Others: m >= 1.
    """
    if micro_batches < 1:
        return False
    if schedule == "1f1b":
        return micro_batches >= pipeline
    if schedule == "dualpipev":
        return micro_batches >= 2 * pipeline
    if schedule in _IN_ROUNDS:
        return micro_batches % rounds(pipeline, micro_batches) == 0
    return True


def check(schedule: str, pipeline: int, micro_batches: int, virtual_stages: int) -> None:
    """Raise LayoutError, with the nearest legal values, where PyTorch's class for `schedule` would refuse."""
    if schedule not in SCHEDULES:
        near = difflib.get_close_matches(schedule.lower(), SCHEDULES, n=3, cutoff=0.3)
        raise LayoutError(f"unknown pipeline schedule '{schedule}'.", legal=near or SCHEDULES)
    if pipeline < 1:
        raise LayoutError(f"{schedule} on {pipeline} pipeline ranks: at least 1 is needed.", legal=("1",))
    _check_stages(schedule, virtual_stages)
    if not takes(schedule, pipeline, micro_batches):
        raise LayoutError(
            f"{schedule} on {pipeline} pipeline ranks cannot run {micro_batches} micro-batches: "
            f"{_RULES.get(schedule, 'it needs one at least')}.",
            legal=[str(m) for m in _nearest(schedule, pipeline, micro_batches)],
        )


def _check_stages(schedule: str, virtual_stages: int) -> None:
    if schedule in _ONE_STAGE:
        legal, right = "1", virtual_stages == 1
    elif schedule in V_SHAPED:
        legal, right = "2", virtual_stages == 2
    else:
        legal, right = "1 or more", virtual_stages >= 1
    if not right:
        raise LayoutError(f"{schedule} cannot have {virtual_stages} stages a rank.", legal=(legal,))


def _nearest(schedule: str, pipeline: int, micro_batches: int) -> list[int]:
    """The nearest legal counts below and above."""
    below = next((m for m in range(micro_batches - 1, 0, -1) if takes(schedule, pipeline, m)), None)
    above = next(m for m in itertools.count(max(1, micro_batches + 1)) if takes(schedule, pipeline, m))
    return [m for m in (below, above) if m is not None]
