"""An Estimate for people: memory and time as tables with bars, speed, traffic, assumptions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from meshwright.cli.bars import bar
from meshwright.cli.documents import memory_parts
from meshwright.cli.tables import table, titled
from meshwright.spec.notation import format_layout
from meshwright.spec.units import binary, count, duration, gb_per_s, gib, percent

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.text import Text

    from meshwright.cli.job import Job
    from meshwright.cost.result import Estimate, Memory


def blocks(job: Job, priced: Estimate) -> Iterator[RenderableType]:
    """What `meshwright estimate` prints, from top to bottom."""
    yield heading(job, f"Layout: {format_layout(priced.layout)}")
    yield memory_block(priced)
    yield time_block(priced)
    yield speed_block(priced)
    if priced.traffic:
        yield traffic_block(priced)
    yield remarks("Assumptions", priced.assumptions)
    yield remarks("Warnings", priced.warnings)


def comparison(job: Job, priced: Sequence[Estimate]) -> Iterator[RenderableType]:
    """Several layouts of one job, a line each, and what is warned of any."""
    yield heading(job)
    yield ""
    rows = [
        (
            format_layout(one.layout),
            duration(one.step_seconds),
            f"{one.tokens_per_second_per_device:,.0f}",
            percent(one.mfu),
            percent(one.bubble),
            gib(one.memory.reserved_bytes),
            one.memory.verdict,
        )
        for one in priced
    ]
    columns = ("layout", ">step", ">tokens/s/device", ">MFU", ">bubble", ">memory", "verdict")
    yield table(columns, rows, drop=("MFU", "bubble", "tokens/s/device"))
    yield remarks("Warnings", dict.fromkeys(text for one in priced for text in one.warnings))


def heading(job: Job, *more: str) -> Text:
    """Model, cluster and work, and what was chosen because nothing was said."""
    from rich.text import Text

    w = job.workload
    software = f"{w.precision}, {w.optimizer} ({w.states}), {w.implementation}"
    work = f"{w.global_batch:,} × {w.seq_len:,} tokens a step, {software}"
    text = Text(f"{job.model.name} on {job.cluster.name}: {work}", style="bold")
    for line in more:
        text.append(f"\n{line}")
    if job.notes:
        text.append(f"\n({'; '.join(job.notes)})", style="not bold dim")
    return text


def memory_block(priced: Estimate) -> Group:
    """Bytes of the fullest device at the peak instant, part by part."""
    memory = priced.memory
    capacity = priced.cluster.host_memory_bytes
    host = f"; {gib(memory.host_bytes)} of a host's {gib(capacity)}" if memory.host_bytes else ""
    title = (
        f"Memory: {gib(memory.reserved_bytes)} of {gib(memory.capacity_bytes)}, {memory.verdict}; "
        f"peak at {memory.peak_instant}{_where(priced, memory)}{host}"
    )
    return _parts_block(title, memory_parts(priced), gib, memory.capacity_bytes)


def _where(priced: Estimate, memory: Memory) -> str:
    """The pipeline rank that is fullest, where there is more than one."""
    if priced.layout.pipeline == 1:
        return ""
    return f" on {('the first', 'the last')[memory.stage != 0]} pipeline rank"


def time_block(priced: Estimate) -> Group:
    """Seconds of a step, part by part."""
    return _parts_block(f"Time: {duration(priced.step_seconds)} a step", priced.time, duration, priced.step_seconds)


def _parts_block(title: str, parts: Mapping[str, float], written: Callable[[float], str], whole: float) -> Group:
    rows = [
        (name, written(value), percent(value / whole), bar(value / whole))
        for name, value in parts.items()
        if value / whole > 0.0005
    ]
    return titled(title, table(("", ">", ">", ""), rows, header=False))


def speed_block(priced: Estimate) -> Group:
    """Throughput and utilisation, sizes, and what is counted."""
    each = "each" if priced.workload.tuning.kind == "full" else "for each that learns"
    states = f"{priced.state_bytes_per_parameter:.4g} bytes of states {each}"
    rows = [
        ("speed", f"{priced.tokens_per_second_per_device:,.0f} tokens/s a device"),
        ("utilisation", f"MFU {percent(priced.mfu)}, HFU {percent(priced.hfu)}, bubble {percent(priced.bubble)}"),
        ("FLOPs a step", f"{priced.model_flops:.4g} of the model, {priced.hardware_flops:.4g} with recomputation"),
        ("parameters", f"{count(priced.parameters)}, {count(priced.active_parameters)} active, {states}"),
        ("on one device", f"{count(priced.parameters_per_device)} parameters before data-parallel sharding"),
    ]
    return titled("Speed and size", table(("", ""), rows, header=False))


def traffic_block(priced: Estimate) -> Group:
    """What one device sends in a step, by axis and collective, and the bandwidth that would hide it."""
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
    columns = ("axis", "collective", ">count", ">bytes", ">time", ">exposed", ">needs to hide")
    return titled("Traffic of a device in a step", table(columns, rows, drop=("count", "needs to hide", "time")))


def remarks(title: str, lines: Iterable[str]) -> RenderableType:
    """A titled list of lines, or nothing."""
    from rich.console import Group

    rows = [("·", line) for line in lines]
    return titled(title, table(("", ""), rows, header=False)) if rows else Group()
