"""What `meshwright comms` prints for people: a table an axis and operation, and a line a fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from meshwright.cli.screen import console
from meshwright.cli.tables import table, titled
from meshwright.spec.units import binary, duration, gb_per_s, percent

if TYPE_CHECKING:
    from meshwright.bench.comms.result import Machine, TierFit
    from meshwright.bench.compute.result import Measured
    from meshwright.spec.collective import Line, Row

COLUMNS = tuple(">size >iterations >median >p99 >algbw >busbw >fit note".split())
NARROW = ("fit", "iterations", "algbw", "p99")
WHERE = {"intra": "inside a node", "inter": "between nodes"}


def show(machine: Machine, rows: Sequence[Row], fits: Sequence[TierFit], measured: Measured | None) -> None:
    """Everything that was measured, then what was fitted."""
    screen = console()
    screen.print(f"{machine.device}: {machine.source}")
    for line, operation in dict.fromkeys((row.line, row.operation) for row in rows):
        chosen = [row for row in rows if (row.line, row.operation) == (line, operation)]
        body = table(COLUMNS, [_cells(row, fits, machine.ranks_per_node) for row in chosen], drop=NARROW)
        screen.print(titled(f"{operation}, {_described(line)}", body))
    if measured is not None:
        _show_compute(measured)
    if fits or measured:
        screen.print()
    for one in fits:
        _print_fit(one)


def _described(line: Line) -> str:
    several = f", {line.groups} groups at once" if line.groups > 1 else ""
    return f"{line.axis}: {line.ranks} ranks on {line.nodes} node{'s' * (line.nodes > 1)} ({line.tier}){several}"


def _cells(row: Row, fits: Sequence[TierFit], ranks_per_node: int) -> tuple[str, ...]:
    from meshwright.bench.comms.fit import priced_seconds

    told = priced_seconds(row, fits, ranks_per_node)
    return (
        binary(row.bytes),
        f"{row.iterations:,}" if row.iterations else "",
        _or_blank(row.seconds, duration),
        _or_blank(row.p99_seconds, duration),
        _or_blank(row.algorithm_bytes_per_s, gb_per_s),
        _or_blank(row.bus_bytes_per_s, gb_per_s),
        f"{told / row.seconds - 1:+.0%}" if told is not None and row.seconds else "",
        row.note,
    )


def _or_blank(value: float | None, form: Callable[[float], str]) -> str:
    return "" if value is None else form(value)


def _print_fit(one: TierFit) -> None:
    from meshwright.bench.comms.cluster_file import rate

    print(f"{WHERE[one.tier]}: α {duration(one.latency_s)} a hop, {rate(one)}, {duration(one.overhead_s)} a collective")
    each = ", ".join(f"{name} {percent(error)}" for name, error in one.operation_errors)
    print(f"  error over {one.points} sizes: {percent(one.median_error)} median ({each})")
    print(f"  {percent(one.worst_error)} at worst: {one.worst}")


def _show_compute(measured: Measured) -> None:
    print()
    for line in measured.lines:
        print(line)
