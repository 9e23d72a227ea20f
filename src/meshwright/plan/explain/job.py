"""The reader's whole job, priced by the same estimate that the planner uses."""

from __future__ import annotations

from typing import Any

from meshwright.cost.estimate import estimate
from meshwright.cost.result import Estimate
from meshwright.plan.explain.inputs import Inputs
from meshwright.plan.explain.page import Section, table
from meshwright.spec.layout import Layout
from meshwright.spec.units import binary, duration, gib, percent
from meshwright.spec.workload import make_workload


def price(given: Inputs, layout: Layout) -> Estimate:
    """The estimate of the whole job. Raises LayoutError where no runtime could run it."""
    work = make_workload(given.seq_len, given.global_batch, causal=given.model.causal, states=given.states)
    return estimate(given.model, given.cluster, work, layout)


def job_section(priced: Estimate) -> tuple[Section, dict[str, Any]]:
    """Memory, time and traffic of the job, and the numbers."""
    work, layout = priced.workload, priced.layout
    memory = priced.memory
    lines = (
        f"{priced.model.name} on {priced.cluster.name}, {layout}, {work.global_batch} x {work.seq_len} tokens a step",
        f"memory {gib(memory.reserved_bytes)} of {gib(memory.capacity_bytes)}: {memory.verdict}; "
        + ", ".join(f"{name} {gib(size)}" for name, size in memory.parts.items() if size > 0),
        f"step {duration(priced.step_seconds)}, MFU {percent(priced.mfu)}, bubble {percent(priced.bubble)}",
    )
    rows = [
        (t.axis, t.collective, f"{t.count:,.0f}", binary(t.bytes), duration(t.seconds), duration(t.exposed_seconds))
        for t in priced.traffic
    ]
    numbers = {
        "step_seconds": priced.step_seconds,
        "mfu": priced.mfu,
        "memory_bytes": dict(memory.parts),
        "reserved_bytes": memory.reserved_bytes,
        "verdict": memory.verdict,
    }
    columns = ("axis", "collective", ">count", ">sent a step", ">time", ">exposed")
    return Section("In your job", lines, table(columns, rows) if rows else None), numbers
