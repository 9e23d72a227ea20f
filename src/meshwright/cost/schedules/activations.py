"""How many activations a rank holds while it walks through its row; time plays no part."""

from __future__ import annotations

from collections.abc import Sequence

from meshwright.cost.schedules.action import BACKWARD, FORWARD, INPUT_GRADIENT, Cell, parts


def peak_held(row: Sequence[Cell], activation: Sequence[float], awaiting_weight: Sequence[float]) -> float:
    """The most that a rank with this row holds at once.

    `activation[s]` is what one micro-batch leaves on stage s from its forward to its backward (or input gradient),
    `awaiting_weight[s]` what is left of it from the input gradient to the weight gradient. Same unit as these.
    """
    held = peak = 0.0
    for cell in row:
        for stage, kind, _ in parts(cell):
            if kind == FORWARD:
                held += activation[stage]
                peak = max(peak, held)
            elif kind == BACKWARD:
                held -= activation[stage]
            elif kind == INPUT_GRADIENT:
                held += awaiting_weight[stage] - activation[stage]
                peak = max(peak, held)
            else:
                held -= awaiting_weight[stage]
    return peak
