"""Candidates: layouts as columns with their prices, and the few selections that a search makes among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from meshwright.plan.space import Axes
from meshwright.spec.columns import LayoutColumns
from meshwright.spec.layout import Layout

ZERO_STAGES = 4
_FIELDS = tuple(f.name for f in fields(LayoutColumns) if f.name != "stage_layers")


@dataclass(frozen=True, slots=True)
class Candidates:
    """Layouts with what each device needs and how long a step takes; arrays of one length."""

    columns: LayoutColumns
    reserved: np.ndarray
    """Bytes that the fullest device must have."""
    seconds: np.ndarray
    """Step time in closed form; infinite where the layout does not fit."""
    family: np.ndarray
    """Code of the degrees and the ZeRO stage; see `family_codes`."""
    runtimes: np.ndarray
    """Bits of the runtimes that run the layout; see `runtimes`."""

    def __len__(self) -> int:
        return int(self.reserved.size)

    def take(self, index: np.ndarray) -> Candidates:
        """The rows that `index` (a mask or positions) selects."""
        return Candidates(
            self.columns.take(index),
            self.reserved[index],
            self.seconds[index],
            self.family[index],
            self.runtimes[index],
        )

    def layout(self, index: int) -> Layout:
        """One row."""
        return self.columns.row(index)


def whole_columns(columns: LayoutColumns, rows: int) -> LayoutColumns:
    """The same columns with every field an array, so that they can be joined."""
    return LayoutColumns(**{name: np.broadcast_to(getattr(columns, name), (rows,)) for name in _FIELDS})


def as_floats(columns: LayoutColumns) -> LayoutColumns:
    """The same numbers as floats: the formulas divide, and would convert them each time."""
    values = {name: getattr(columns, name) for name in _FIELDS}
    return LayoutColumns(
        **{name: value.astype(float) if isinstance(value, np.ndarray) else value for name, value in values.items()}
    )


def nothing() -> Candidates:
    """No rows."""
    none = np.zeros(0)
    return Candidates(LayoutColumns(**dict.fromkeys(_FIELDS, none)), none, none, *np.zeros((2, 0), dtype=np.int64))


def join(parts: Sequence[Candidates]) -> Candidates:
    """All rows, in order. Every column of every part must be an array."""
    parts = (nothing(), *parts)
    columns = {name: np.concatenate([getattr(part.columns, name) for part in parts]) for name in _FIELDS}
    return Candidates(
        LayoutColumns(**columns),
        np.concatenate([part.reserved for part in parts]),
        np.concatenate([part.seconds for part in parts]),
        np.concatenate([part.family for part in parts]),
        np.concatenate([part.runtimes for part in parts]),
    )


def family_codes(columns: LayoutColumns, degrees: Axes) -> np.ndarray:
    """One number for tensor, context, pipeline and expert degree and ZeRO stage together, below `family_count`."""
    code = np.searchsorted(degrees.tensor, columns.tensor)
    for name in ("context", "pipeline", "expert"):
        values = getattr(degrees, name)
        code = code * len(values) + np.searchsorted(values, getattr(columns, name))
    return np.asarray(code * ZERO_STAGES + columns.zero_stage)


def family_count(degrees: Axes) -> int:
    """How many codes there are."""
    return len(degrees.tensor) * len(degrees.context) * len(degrees.pipeline) * len(degrees.expert) * ZERO_STAGES


def best_of_each(group: np.ndarray, keys: Sequence[np.ndarray], count: int) -> np.ndarray:
    """Positions of the `count` least rows of each group by `keys` (the first decides), least first in each group."""
    order = np.lexsort((*keys[::-1], group))
    sorted_group = group[order]
    starts = np.flatnonzero(np.r_[True, sorted_group[1:] != sorted_group[:-1]]) if order.size else order
    rank = np.arange(order.size) - np.repeat(starts, np.diff(np.r_[starts, order.size]))
    return order[rank < count]


def front(seconds: np.ndarray, reserved: np.ndarray) -> np.ndarray:
    """Positions of the rows that no other row beats in both, fastest first; equal rows once, the first of them."""
    # Single precision, so that sums in another order are equal.
    seconds, reserved = seconds.astype(np.float32), reserved.astype(np.float32)
    order = np.lexsort((reserved, seconds))
    least = np.minimum.accumulate(reserved[order])
    better = np.r_[True, least[1:] < least[:-1]] if order.size else np.zeros(0, dtype=bool)
    return order[better]
