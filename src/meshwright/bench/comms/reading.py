"""Reading: rows from files of nccl-tests in place of measurements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from meshwright.bench.comms.fit import fit_tiers
from meshwright.bench.comms.result import Machine, TierFit
from meshwright.diagnose.nccl_tests import ReadError, read_file
from meshwright.spec.cluster_catalog import catalogue_name
from meshwright.spec.collective import INTRA, Row


def read_files(
    files: Sequence[Path], tier: str | None = None, operation: str | None = None
) -> tuple[Machine, tuple[Row, ...], tuple[TierFit, ...]]:
    """The machine, the rows and the fits of several files, as if they had been measured in one session.

    The machine is the largest that a file speaks of. Raises ReadError.
    """
    outcomes = [read_file(path, tier, operation) for path in files]
    largest = max(outcomes, key=lambda one: (one.nodes, one.ranks))
    rows = tuple(row for one in outcomes for row in one.rows)
    inside = [row.line.ranks for row in rows if row.line.tier == INTRA]
    # Ranks of one node: its devices, of which a test between nodes may use only some.
    per_node = max([*inside, largest.ranks // largest.nodes])
    devices = dict.fromkeys(one.device for one in outcomes if one.device)
    if len(devices) > 1:
        raise ReadError(f"The files are of different devices: {', '.join(devices)}.")
    names = ", ".join(path.name for path in files)
    machine = Machine(
        ranks=largest.nodes * per_node,
        nodes=largest.nodes,
        device=(device := next(iter(devices), "")),
        catalogue_name=(catalogue_name(device) or "") if device else "",
        backend="nccl-tests",
        source=f"nccl-tests: {names}",
    )
    return machine, rows, fit_tiers(rows, machine.ranks_per_node)
