"""What was sent, beside what the formulas say."""

from __future__ import annotations

from meshwright.check.case import Case
from meshwright.check.merge import Comparison
from meshwright.check.result import TrafficRow
from meshwright.cost.wire import WireOptions, wire
from meshwright.cost.wire import compare as beside
from meshwright.spec.layout import Layout
from meshwright.spec.workload import make_workload
from meshwright.train.models.build import load_architecture

ELEMENT = {"float64": 8, "float32": 4}


def compare_traffic(case: Case, layout: Layout, found: Comparison) -> tuple[tuple[TrafficRow, ...], str]:
    """Rows of the rank that sent most, and in words what differs from the formulas on any rank."""
    model = load_architecture(case.model).model
    workload = make_workload(case.seq_len, case.global_batch, precision="fp32", implementation="eager")
    options = WireOptions.uniform(ELEMENT[case.dtype])
    ranks = [
        beside(model, layout, recorded, wire(model, workload, layout, rank, options))
        for rank, recorded in enumerate(found.traffic)
    ]
    busiest = max(ranks, key=lambda lines: sum(line.bytes for line in lines))
    rows = tuple(
        TrafficRow(x.axis, x.collective, x.count, round(x.bytes), None if x.approximate else round(x.expected_bytes))
        for x in busiest
    )
    for rank, lines in enumerate(ranks):
        for x in lines:
            if not x.agrees:
                counts = f" in {x.count} (formula: {x.expected_count})" if x.expected_count not in (0, x.count) else ""
                return rows, (
                    f"rank {rank} sent {x.bytes:,.0f} bytes of {x.collective} over {x.axis}{counts}, "
                    f"the formula says {x.expected_bytes:,.0f}"
                )
    return rows, ""
