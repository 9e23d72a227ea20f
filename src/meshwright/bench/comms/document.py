"""The document that `comms --json` prints: seconds, bytes and bytes/s."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meshwright.bench.comms.fit import priced_seconds
from meshwright.bench.comms.result import Machine, TierFit
from meshwright.spec.collective import Line, Row


def comms_document(machine: Machine, rows: Sequence[Row], fits: Sequence[TierFit]) -> dict[str, Any]:
    """Everything that was measured, and what was fitted to it."""
    return {
        "machine": {
            "ranks": machine.ranks,
            "nodes": machine.nodes,
            "device": machine.device,
            "backend": machine.backend,
            "source": machine.source,
        },
        "rows": [_row(row, fits, machine.ranks_per_node) for row in rows],
        "fits": [_fit(one) for one in fits],
    }


def _row(row: Row, fits: Sequence[TierFit], ranks_per_node: int) -> dict[str, Any]:
    return {
        **_line(row.line),
        "operation": row.operation,
        "bytes": row.bytes,
        "iterations": row.iterations,
        "seconds": row.seconds,
        "p99_seconds": row.p99_seconds,
        "algorithm_bytes_per_s": row.algorithm_bytes_per_s,
        "bus_bytes_per_s": row.bus_bytes_per_s,
        "fitted_seconds": priced_seconds(row, fits, ranks_per_node),
        "note": row.note,
    }


def _line(line: Line) -> dict[str, Any]:
    return {
        "axis": line.axis,
        "ranks": line.ranks,
        "groups": line.groups,
        "nodes": line.nodes,
        "tier": line.tier,
    }


def _fit(one: TierFit) -> dict[str, Any]:
    return {
        "tier": one.tier,
        "latency_s": one.latency_s,
        "bytes_per_s": one.bytes_per_s,
        "bandwidth_seen": one.bandwidth_seen,
        "overhead_s": one.overhead_s,
        "points": one.points,
        "median_error": one.median_error,
        "worst_error": one.worst_error,
        "worst": one.worst,
        "operation_errors": dict(one.operation_errors),
    }
