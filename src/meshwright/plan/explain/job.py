"""The reader's whole job, priced by the same estimate that the planner uses."""

from __future__ import annotations

from typing import Any

from meshwright.cost.estimate import estimate
from meshwright.plan.explain.inputs import Inputs
from meshwright.plan.explain.page import Section, table
from meshwright.spec.layout import Layout
from meshwright.spec.units import binary, duration, gib, percent
from meshwright.spec.workload import make_workload

MICRO_BATCHES = 8
"""Micro-batches a step of a job that has no pipeline to fill."""


def job_section(given: Inputs, layout: Layout, micro_batches: int | None) -> tuple[Section, dict[str, Any]]:
    """Memory, time and traffic of `layout`, and the numbers. Raises LayoutError where no runtime could run it."""
    m = micro_batches or max(MICRO_BATCHES, 4 * layout.pipeline)
    work = make_workload(
        given.seq_len, m * layout.micro_batch * layout.data, causal=given.model.causal, states=given.states
    )
    priced = estimate(given.model, given.cluster, work, layout)
    memory = priced.memory
    lines = (
        f"{given.model.name} on {given.cluster.name}, {layout}, {work.global_batch} x {work.seq_len} tokens a step",
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
    return Section("In your job", lines, table(columns, rows)), numbers
