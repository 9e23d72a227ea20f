"""What a norm keeps for backward (`train/models/norms.py`): its output, which a product takes, and statistics of rows.

A GPU's kernel keeps fp32 statistics; root mean squares on a CPU are made of small operations, which keep wide copies.
"""

from __future__ import annotations

from meshwright.cost.program.shape import WIDE, Shape


def norm_output(s: Shape, rows: int, held: int, width: int) -> int:
    """Of a norm over `rows` rows of a width, whose output is kept as `held` rows: gathered ones may be more."""
    return s.element * held * width + statistics(s, rows, width)


def statistics(s: Shape, rows: int, width: int) -> int:
    """What a norm keeps beside its input and output."""
    if s.model.norm == "rmsnorm":
        narrow = s.element < WIDE
        wide = 0 if s.gpu else WIDE * rows * width * (2 if narrow else 1)
        return WIDE * rows + wide + s.copies(width)
    biases = 2 if s.model.norm == "layernorm" else 1
    return 2 * (WIDE if s.gpu else s.element) * rows + s.copies(*[width] * biases)


def keeps_input(s: Shape) -> bool:
    """Whether a norm's input waits, too; a norm of many small operations keeps a wide copy of a narrow one instead."""
    return s.gpu or s.model.norm != "rmsnorm" or s.element == WIDE
