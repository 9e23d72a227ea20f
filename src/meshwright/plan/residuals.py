"""How far prices are from measurements as a function of the free constants, and the derivative of that.

A row depends on its device's constants and its software's and on no others, so a derivative prices only those groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from meshwright.catalog.cluster_files import efficiency_tables
from meshwright.cost.memory import peak_memory
from meshwright.cost.step import step_time
from meshwright.plan.free_constants import DEFAULT, DEVICE, FreeConstant
from meshwright.plan.history import device_class
from meshwright.plan.run_groups import RunGroup, run_groups
from meshwright.plan.run_nouns import RunNouns
from meshwright.spec.implementation import Implementation, load_implementation

TIME, MEMORY = "time", "memory"
STEP = 1e-3
"""Of a constant's range, what a derivative is taken over."""

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Residuals:
    """Rows with one measured quantity each, seconds a step (TIME) or peak bytes (MEMORY)."""

    quantity: str
    groups: tuple[RunGroup, ...]
    measured: Array
    constants: tuple[FreeConstant, ...]

    def at(self, values: Array) -> Array:
        """ln(price / measurement) of every row, with these values of the constants."""
        found = np.empty(len(self.measured))
        for group in self.groups:
            found[group.rows] = self._of_group(group, values)
        return found

    def jacobian(self, values: Array) -> Array:
        """Derivatives of `at` by the constants: a row a measurement, a column a constant. One-sided differences."""
        base = self.at(values)
        found = np.zeros((len(base), len(self.constants)))
        for column, constant in enumerate(self.constants):
            moved = values.copy()
            step = STEP * (constant.high - constant.low)
            moved[column] += step if values[column] + step <= constant.high else -step
            for group in self.groups:
                if self._applies(constant, group):
                    rise = self._of_group(group, moved) - base[group.rows]
                    found[group.rows, column] = rise / (moved[column] - values[column])
        return found

    def responds(self, constant: FreeConstant) -> bool:
        """Whether any row's price changes between the bounds of a constant, all others at their start."""
        values = np.array([each.start for each in self.constants])
        column = self.constants.index(constant)
        prices = []
        for value in (constant.start, constant.low, constant.high):
            values[column] = value
            prices.append([self._of_group(g, values) for g in self.groups if self._applies(constant, g)])
        return any(not np.array_equal(a, b) for other in prices[1:] for a, b in zip(prices[0], other, strict=True))

    def _of_group(self, group: RunGroup, values: Array) -> Array:
        mine = {c: float(v) for c, v in zip(self.constants, values, strict=True) if self._applies(c, group)}
        return np.log(_price(self.quantity, group, mine) / self.measured[group.rows])

    def _applies(self, constant: FreeConstant, group: RunGroup) -> bool:
        if constant.kind != DEVICE:
            return constant.owner == group.workload.implementation
        device = group.cluster.device.name
        chip = device_class(device)
        if constant.owner != DEFAULT:
            return constant.owner == chip
        own = {c.name for c in self.constants if (c.kind, c.owner) == (DEVICE, chip)}
        return constant.name not in own | set(efficiency_tables().get(device, {}))


def residuals(
    quantity: str, runs: Sequence[RunNouns], measured: Sequence[float], constants: Sequence[FreeConstant]
) -> Residuals:
    """Residuals of runs whose seconds or bytes were measured."""
    return Residuals(quantity, tuple(run_groups(runs)), np.array(measured, dtype=float), tuple(constants))


def _price(quantity: str, group: RunGroup, values: Mapping[FreeConstant, float]) -> Array:
    """Seconds or bytes of a group's rows with some constants replaced."""
    device = group.cluster.device
    reached = {c.name: value for c, value in values.items() if c.kind == DEVICE}
    software: Implementation = load_implementation(group.workload.implementation)
    own = {c.name: value for c, value in values.items() if c.kind != DEVICE}
    cluster = replace(group.cluster, device=replace(device, efficiency=replace(device.efficiency, **reached)))
    args = (group.model, cluster, group.workload, group.layouts, replace(software, **own))  # type: ignore[arg-type]
    price = step_time(*args).total if quantity == TIME else group.reading.bytes(peak_memory(*args), cluster.device)
    return np.broadcast_to(np.asarray(price, dtype=float), group.rows.shape)
