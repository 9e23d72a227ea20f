"""Collectives under the name of their axis in a trace, whoever issues them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import torch

from meshwright.diagnose.traces.events import COLLECTIVE
from meshwright.modes.axis_names import AxisNames
from meshwright.modes.collective_ops import Operator
from meshwright.modes.mesh import Mesh
from meshwright.modes.record import entry_of, set_around


class NamedCollectives:
    """While entered, each call is in a range `meshwright:collective AXIS KIND BYTES`."""

    def __init__(self, mesh: Mesh) -> None:
        self._names = AxisNames(mesh)

    def __enter__(self) -> NamedCollectives:
        set_around(self._range)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        set_around(None)

    def _range(self, operator: Operator, arguments: tuple[Any, ...]) -> AbstractContextManager[Any]:
        entry = entry_of(operator, arguments, self._names)
        return torch.profiler.record_function(f"{COLLECTIVE}{entry.axis or '?'} {entry.collective} {entry.bytes}")
