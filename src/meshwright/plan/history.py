"""The published runs of the catalogue, or of a user's table, and the ones nearest to a plan."""

from __future__ import annotations

import csv
import difflib
import math
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from meshwright.catalog.run_files import FILE, read_runs_table
from meshwright.cost.parameters import parameters
from meshwright.plan.published import COLUMNS, REQUIRED, PublishedRun
from meshwright.spec.cluster import Cluster
from meshwright.spec.errors import RequestError
from meshwright.spec.layout import Layout
from meshwright.spec.model import Model
from meshwright.spec.workload import Workload

GENERATIONS = (
    ("V100",),
    ("A100", "A800"),
    ("H100", "H800", "H200", "GH200", "H20"),
    ("B200", "GB200", "B300", "GB300"),
)
"""Devices of one chip: runs on one say something of the others."""
SAME_CHIP_DISTANCE = 1.0
"""What another device of the same generation weighs against one doubling of the model's size."""


@cache
def runs() -> tuple[PublishedRun, ...]:
    """The published runs of the catalogue. Read once a process."""
    return tuple(_runs(FILE))


def read_runs(path: Path) -> tuple[PublishedRun, ...]:
    """The runs of a CSV file in the catalogue's columns (`catalog/runs/README.md`).

    Raises RequestError: a file that cannot be read or has no rows, columns that are missing, unknown or twice there,
    an id that comes twice, and cells that are no number; with line and column.
    """
    seen: dict[str, int] = {}
    found = []
    for run in _runs(path):
        run.check()
        if run.id in seen:
            raise RequestError(f"Line {run.line}, column id: {run.id!r} stands on line {seen[run.id]} already.")
        seen[run.id] = run.line
        found.append(run)
    if not found:
        raise RequestError(f"{path} has no rows.")
    return tuple(found)


def list_runs(
    model: str = "", device: str = "", among: tuple[PublishedRun, ...] | None = None
) -> tuple[PublishedRun, ...]:
    """Runs whose model name holds `model` and whose device holds `device`, in any case and spelling, fastest first."""
    wanted_model, wanted_device = _key(model), _key(device)
    chosen = (
        run
        for run in (runs() if among is None else among)
        if wanted_model in _key(run.model_name) and wanted_device in _key(run.device)
    )
    return tuple(sorted(chosen, key=lambda run: -(run.tokens_per_second_per_device or 0.0)))


def nearest_runs(
    model: Model, cluster: Cluster, layout: Layout, workload: Workload, k: int = 3
) -> tuple[PublishedRun, ...]:
    """The `k` published runs most like a plan, nearest first; empty where none ran on this kind of device.

    Only runs with a step time that can be relied on count. The distance adds doublings of size, devices, degrees and
    sequence length, and a constant for another ZeRO stage, recomputation or device of the same chip.
    """
    wanted, size = device_class(cluster.device.name), parameters(model).total
    near = []
    for run in runs():
        other = device_class(run.device)
        if run.time_ok and _same_chip(wanted, other) and run.step_seconds is not None:
            distance = _distance(run, size, cluster.devices, layout, workload)
            near.append((distance + SAME_CHIP_DISTANCE * (other != wanted), run))
    return tuple(run for _, run in sorted(near, key=lambda pair: (pair[0], pair[1].id))[:k])


@cache
def device_class(name: str) -> str:
    """What is left of a device's name without form factor, memory size and box: `A100-SXM4-80GB` is `A100`."""
    match = re.search(r"(?<![A-Z0-9])(TPU\W?V\d+[A-Z]?|[A-Z]*\d{2,4}[A-Z]?)(?![0-9])", name.upper())
    return match.group(1) if match else name.upper()


def _same_chip(one: str, other: str) -> bool:
    return one == other or any(one in names and other in names for names in GENERATIONS)


def _distance(run: PublishedRun, size: float, devices: int, layout: Layout, workload: Workload) -> float:
    def doublings(one: float, other: float | None) -> float:
        return 0.0 if other is None else abs(math.log2(one / other))

    return (
        doublings(size, run.parameters)
        + 0.5 * doublings(devices, run.devices)
        + 0.5 * (doublings(layout.tensor, run.count("tp")) + doublings(layout.pipeline, run.count("pp")))
        + 0.5 * doublings(workload.seq_len, run.count("seq_len"))
        + 0.25 * doublings(layout.micro_batch, run.count("microbatch"))
        + 0.5 * (run.zero_stage is not None and run.zero_stage != layout.zero_stage)
        + 0.5 * (bool(run.recompute) and run.recompute != layout.recompute)
    )


def _key(text: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", text.lower())


def _runs(path: Path) -> Iterator[PublishedRun]:
    try:
        header, rows = read_runs_table(path)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise RequestError(f"{path} cannot be read as a CSV file: {error}.") from error
    columns = [column.strip() for column in header]
    _check_columns(path, columns)
    for line, cells in rows:
        if len(cells) != len(columns):
            raise RequestError(f"Line {line} has {len(cells)} cells, the header has {len(columns)} columns.")
        yield PublishedRun(line, dict(zip(columns, cells, strict=True)))


def _check_columns(path: Path, columns: list[str]) -> None:
    missing = [column for column in REQUIRED if column not in columns]
    if missing:
        raise RequestError(f"{path} lacks the columns {', '.join(missing)}.")
    for column in columns:
        if column not in COLUMNS:
            near = difflib.get_close_matches(column, COLUMNS, n=4, cutoff=0.4)
            raise RequestError(f"{path} has the unknown column {column[:40]!r}.", near or sorted(COLUMNS))
        if columns.count(column) > 1:
            raise RequestError(f"{path} has the column {column} twice.")
