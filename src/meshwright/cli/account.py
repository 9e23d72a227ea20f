"""An Estimate for people: memory and time as tables with bars, speed, traffic, assumptions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from meshwright.cli.bars import bar
from meshwright.cli.documents import memory_parts
from meshwright.cli.tables import table
from meshwright.spec.notation import format_layout
from meshwright.spec.units import binary, count, duration, gb_per_s, gib, percent

if TYPE_CHECKING:
    from rich.table import Table

    from meshwright.cli.job import Job
    from meshwright.cost.result import Estimate


def heading(job: Job, priced: Estimate) -> str:
    """What was priced, and what was chosen unasked."""
    return "\n".join(
        (f"[bold]{job_line(job)}[/]", f"Layout: [bold]{format_layout(priced.layout)}[/]", *note_lines(job))
    )


def job_line(job: Job) -> str:
    """Model, cluster and work in one line."""
    w = job.workload
    software = f"{w.precision}, {w.optimizer} ({w.states}), {w.implementation}"
    return f"{job.model.name} on {job.cluster.name}: {w.global_batch:,} × {w.seq_len:,} tokens a step, {software}"


def note_lines(job: Job) -> tuple[str, ...]:
    """What was chosen because nothing was said."""
    return (f"[dim]({'; '.join(job.notes)})[/]",) if job.notes else ()


def memory_table(priced: Estimate) -> Table:
    """Bytes of the fullest device at the peak instant, part by part."""
    memory = priced.memory
    title = (
        f"Memory: {gib(memory.reserved_bytes)} of {gib(memory.capacity_bytes)}, [bold]{memory.verdict}[/]; "
        f"peak at {memory.peak_instant}, pipeline rank {memory.stage}"
    )
    parts = memory_parts(priced)
    if memory.host_bytes:
        title += f"; {gib(memory.host_bytes)} of host memory a node"
    return _parts_table(title, parts, gib, memory.capacity_bytes)


def time_table(priced: Estimate) -> Table:
    """Seconds of a step, part by part."""
    return _parts_table(f"Time: {duration(priced.step_seconds)} a step", priced.time, duration, priced.step_seconds)


def _parts_table(title: str, parts: Mapping[str, float], written: Callable[[float], str], whole: float) -> Table:
    shown = {name: value for name, value in parts.items() if abs(value) > 0}
    rows = [(name, written(value), percent(value / whole), bar(value / whole)) for name, value in shown.items()]
    return table(("part", ">size", ">share", ""), rows, title)


def speed_lines(priced: Estimate) -> str:
    """Throughput and utilisation, with what they count."""
    states = priced.state_bytes_per_parameter
    return "\n".join(
        (
            f"Speed: {priced.tokens_per_second_per_device:,.0f} tokens/s a device; MFU {percent(priced.mfu)}, "
            f"HFU {percent(priced.hfu)}, bubble {percent(priced.bubble)}",
            f"Parameters: {count(priced.parameters)}, {count(priced.active_parameters)} active, "
            f"{count(priced.parameters_per_device)} a device; states {states:g} bytes a parameter",
            f"FLOPs a step: {priced.model_flops:.4g} for the model, {priced.hardware_flops:.4g} with recomputation",
        )
    )


def traffic_table(priced: Estimate) -> Table | str:
    """What one device sends in a step, by axis and collective."""
    if not priced.traffic:
        return "Traffic: none"
    rows = [
        (
            t.axis,
            t.collective,
            f"{t.count:,.0f}",
            binary(t.bytes),
            duration(t.seconds),
            duration(t.exposed_seconds),
            gb_per_s(t.bandwidth_to_hide) if t.bandwidth_to_hide else "cannot",
        )
        for t in priced.traffic
    ]
    columns = ("axis", "collective", ">count", ">bytes", ">time", ">exposed", ">bandwidth to hide")
    return table(columns, rows, "Traffic of a device in a step")


def remarks(title: str, lines: Iterable[str]) -> str:
    """A titled list, or nothing."""
    listed = [f"  · {line}" for line in lines]
    return "\n".join((f"[bold]{title}[/]", *listed)) if listed else ""
