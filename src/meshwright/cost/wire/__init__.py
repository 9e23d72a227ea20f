"""Wire: exactly what one rank of our runtime sends in one optimizer step, in bytes, from formulas alone.

`cost.traffic` prices what runtimes at large send, smoothly and in columns, for the search; `wire` counts the
collectives of the programs in `modes` and `train`, parameter by parameter, so that `check` can hold a recorded run
(`modes.record`) against it. Each file opens with its formulas and their sources.
"""

from __future__ import annotations

from meshwright.cost.wire.compare import Comparison, compare, shared_axis
from meshwright.cost.wire.options import WireOptions
from meshwright.cost.wire.step import wire
from meshwright.cost.wire_row import SMALL, WireRow

__all__ = ["SMALL", "Comparison", "WireOptions", "WireRow", "compare", "shared_axis", "wire"]
