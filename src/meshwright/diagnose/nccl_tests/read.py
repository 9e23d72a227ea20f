"""Rows from nccl-tests' output: which operation, how many ranks, on how many nodes, and what the table says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from meshwright.diagnose.nccl_tests.json_file import read_json
from meshwright.diagnose.nccl_tests.report import PROGRAMS, ReadError, Report, Timed, program_of
from meshwright.diagnose.nccl_tests.table import read_table
from meshwright.spec.collective import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    INTER,
    INTRA,
    REDUCE_SCATTER,
    Line,
    Row,
    bus_factor,
)

MOST_BYTES = 64 * 2**20
"""Size of the largest file that is read."""
TOLERANCE = 0.02
"""Relative: bandwidths are printed with two decimals."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one file says."""

    rows: tuple[Row, ...]
    ranks: int
    nodes: int
    device: str
    """As the driver calls it; "": not said."""


def read_file(path: Path, tier: str | None = None, operation: str | None = None) -> Outcome:
    """The rows of a file. `tier` and `operation` say what the file does not. Raises ReadError."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ReadError(f"{path}: larger than {MOST_BYTES // 2**20} MiB, so not the output of nccl-tests.")
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ReadError(f"Cannot read {path}: {error.strerror}.") from error
    return read_text(text, str(path), tier, operation)


def read_text(text: str, where: str, tier: str | None = None, operation: str | None = None) -> Outcome:
    """The rows of a file's text; `where` names it in errors, and may name the program (`all_reduce_perf.log`)."""
    reports = _reports(text, where)
    rows: list[Row] = []
    most, nodes, device = 0, 1, ""
    for report in reports:
        found = rows_of_report(report, where, tier, operation)
        rows += found
        most = max([most, *(row.line.ranks for row in found)])
        nodes = max([nodes, *(row.line.nodes for row in found)])
        device = device or report.device
    return Outcome(tuple(rows), most, nodes, device)


def rows_of_report(report: Report, where: str, tier: str | None = None, operation: str | None = None) -> list[Row]:
    """One test's rows. Raises ReadError: wrong data, no operation of layouts, or not said which ranks share a node."""
    _check(report, where)
    line, name = _line(report, where, tier, operation)
    return [Row(line, name, one.bytes, report.iterations, one.seconds) for one in report.lines if one.bytes > 0]


def _reports(text: str, where: str) -> list[Report]:
    if text.lstrip().startswith(("{", "[{")):
        try:
            found = read_json(json.loads(text), where)
        except (ValueError, RecursionError) as error:
            if isinstance(error, ReadError):
                raise
            raise ReadError(f"{where}: broken JSON: {error}.") from error
    else:
        found = read_table(text, where)
    found = [report for report in found if report.lines]
    if not found:
        first = next((line for line in text.splitlines() if "failure" in line.lower()), "")
        told = f" It says: {first.strip()[:120]}" if first else ""
        raise ReadError(f"{where}: no result of nccl-tests in it.{told}")
    return found


def _check(report: Report, where: str) -> None:
    """Raises ReadError where the test itself found wrong data: such times mean nothing."""
    wrong = [one for one in report.lines if one.wrong]
    if wrong or report.out_of_bounds:
        size = f" at {wrong[0].bytes:,} bytes" if wrong else ""
        raise ReadError(f"{where}: the test found wrong data{size}; its times cannot be used.")


def _line(report: Report, where: str, tier: str | None, operation: str | None) -> tuple[Line, str]:
    program = report.program or program_of(Path(where).name)
    if program and program not in PROGRAMS:
        raise ReadError(f"{where}: {program}_perf is not an operation that layouts use.", sorted(PROGRAMS))
    name = operation or PROGRAMS.get(program) or _operation(report, where)
    ranks = len(report.hosts) if len(report.hosts) > 1 else _ranks(name, report.lines, where)
    named = [host for host in report.hosts if host]
    if not named and tier is None:
        raise ReadError(f"{where}: does not say which ranks share a node.", ("--tier intra", "--tier inter"))
    nodes = len(set(named)) if len(named) == ranks else 1 if tier != INTER else ranks
    told = INTRA if nodes == 1 else INTER
    return Line(f"{ranks} ranks", ranks, 1, nodes, tier or told), name


def _operation(report: Report, where: str) -> str:
    """The operation whose bandwidths are in the ratio that the table shows. Raises ReadError: several are."""
    ranks = len(report.hosts)
    large = max(report.lines, key=lambda one: one.bytes)
    if ranks > 2 and large.algorithm_bytes_per_s:
        ratio = large.bus_bytes_per_s / large.algorithm_bytes_per_s
        if abs(ratio / bus_factor(ALL_REDUCE, ranks) - 1) < TOLERANCE:
            return ALL_REDUCE
    raise ReadError(f"{where}: does not say which operation it is.", ("--op all-reduce", "--op all-gather"))


def _ranks(operation: str, lines: Sequence[Timed], where: str) -> int:
    """Ranks from the ratio of the two bandwidths, where the header does not list them. Raises ReadError."""
    large = max(lines, key=lambda one: one.bytes)
    share = {ALL_REDUCE: 2.0, ALL_GATHER: 1.0, REDUCE_SCATTER: 1.0, ALL_TO_ALL: 1.0}.get(operation)
    if share is not None and large.algorithm_bytes_per_s:
        left = 1 - large.bus_bytes_per_s / large.algorithm_bytes_per_s / share
        ranks = round(1 / left) if left > 1e-4 else 0
        if ranks > 1 and abs(bus_factor(operation, ranks) / (share * (1 - left)) - 1) < TOLERANCE:
            return ranks
    raise ReadError(f"{where}: does not say how many ranks took part (the lines '#  Rank  0 …').")
