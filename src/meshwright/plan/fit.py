"""Fits the constants of devices and of software to published runs with role `fit`: `python -m meshwright.plan.fit`.

Least squares over ln(price / measurement), each source weighed as a whole, with a loss that grows linearly beyond
LOSS_SCALE so that a sick node does not move a constant. Seconds and bytes have no constant in common and are fitted
apart. Needs scipy, which is a development tool: planning does without.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from meshwright.plan.constants_file import save_fit
from meshwright.plan.free_constants import FILE, FreeConstant, FreeTable, read_free_constants
from meshwright.plan.history import read_runs, runs
from meshwright.plan.pricing import read_nouns
from meshwright.plan.published import PublishedRun
from meshwright.plan.residuals import MEMORY, TIME, Array, Residuals, residuals
from meshwright.plan.run_nouns import RunNouns
from meshwright.spec.errors import RequestError
from meshwright.spec.units import GIB

LOSS_SCALE = 0.05
"""Errors beyond this count linearly."""
EVALUATIONS = 60
"""The solver stops after so many steps at the latest."""
ENOUGH = 1e-5
"""It stops before when a step lowers the loss by less than this share, or moves the constants less."""
SNAP = 1e-4
"""A constant that ends this close to a bound, as a share of its range, is put on it: 0 is easier read than 5e-10."""

Pair = tuple[PublishedRun, RunNouns]


class FitError(RequestError):
    """A fit that cannot be made."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Fitted constants and what they were fitted to."""

    values: Mapping[FreeConstant, float]
    idle: tuple[FreeConstant, ...]
    """Constants on which no row depends; they keep their value in the catalogue."""
    rows: Mapping[str, Mapping[str, int]]
    """Rows by quantity (TIME, MEMORY) and source."""
    errors: Mapping[str, tuple[float, float]]
    """Median |ln(price / measurement)| at the start and at the end, by quantity."""

    @property
    def at_bounds(self) -> tuple[FreeConstant, ...]:
        """Constants that ended at a bound: what they stand for may be something else."""
        return tuple(c for c, v in self.values.items() if min(v - c.low, c.high - v) < 1e-3 * (c.high - c.low))


def fit(published: Iterable[PublishedRun], table: FreeTable) -> Fit:
    """Constants that price the runs with role `fit` best; other runs are not looked at.

    Raises FitError: scipy is missing, or no row depends on any free constant.
    """
    read, _ = read_nouns(run for run in published if run.text("role") == "fit")
    values: dict[FreeConstant, float] = {}
    rows, errors = {}, {}
    for quantity, measure in MEASURES.items():
        pairs = [(pair, measured) for pair in read if (measured := measure(pair[0])) is not None]
        chosen = [pair for pair, _ in pairs]
        of_rows = _responding([n for _, n in chosen], [y for _, y in pairs], quantity, table.constants)
        if not of_rows.constants:
            continue
        start = np.array([constant.start for constant in of_rows.constants])
        end = _solve(of_rows, row_weights(chosen, table.weights), start)
        values |= dict(zip(of_rows.constants, end.tolist(), strict=True))
        rows[quantity] = Counter(run.source for run, _ in chosen)
        errors[quantity] = (_median(of_rows.at(start)), _median(of_rows.at(end)))
    if not values:
        raise FitError("No row with role fit depends on any of the free constants.")
    return Fit(values, tuple(c for c in table.constants if c not in values), rows, errors)


def _seconds(run: PublishedRun) -> float | None:
    return run.step_seconds if run.time_ok else None


def _bytes(run: PublishedRun) -> float | None:
    peak = run.measure("peak_mem_gib")
    return None if peak is None else peak * GIB


MEASURES: Mapping[str, Callable[[PublishedRun], float | None]] = {TIME: _seconds, MEMORY: _bytes}


def _responding(
    nouns: Sequence[RunNouns], measured: Sequence[float], quantity: str, constants: Sequence[FreeConstant]
) -> Residuals:
    """Residuals that know only the constants on which some row depends: the others have no least square."""
    whole = residuals(quantity, nouns, measured, constants)
    return residuals(quantity, nouns, measured, [c for c in constants if whole.responds(c)])


def row_weights(pairs: Sequence[Pair], weights: Mapping[str, float]) -> Array:
    """A weight a row: those of a source (or of its rows on one node, on several) add up to the source's weight."""
    keys = [_weight_key(run, nouns, weights) for run, nouns in pairs]
    count = Counter(keys)
    return np.array([weights.get(key, 1.0) / count[key] for key in keys])


def _weight_key(run: PublishedRun, nouns: RunNouns, weights: Mapping[str, float]) -> str:
    special = f"{run.source} {'multi' if nouns.cluster.nodes > 1 else 'single'}-node"
    return special if special in weights else run.source


def _solve(of_rows: Residuals, weights: Array, start: Array) -> Array:
    """Trust-region least squares within the bounds, over constants scaled to 0 … 1."""
    try:
        from scipy.optimize import least_squares  # type: ignore[import-untyped]
    except ImportError as error:
        raise FitError("A fit needs scipy, which is not installed: pip install scipy.") from error
    low = np.array([constant.low for constant in of_rows.constants])
    width = np.array([constant.high for constant in of_rows.constants]) - low

    def loss(squares: Array) -> Any:
        root = np.sqrt(1 + squares)
        return weights * np.array([2 * (root - 1), 1 / root, -0.5 / root**3])

    found = least_squares(
        lambda x: of_rows.at(low + x * width),
        np.clip((start - low) / width, 1e-6, 1 - 1e-6),
        jac=lambda x: of_rows.jacobian(low + x * width) * width,
        bounds=(0.0, 1.0),
        loss=loss,
        f_scale=LOSS_SCALE,
        max_nfev=EVALUATIONS,
        ftol=ENOUGH,
        xtol=ENOUGH,
    )
    share = np.where(found.x < SNAP, 0.0, np.where(found.x > 1 - SNAP, 1.0, found.x))
    return np.asarray(low + share * width)


def _median(errors: Array) -> float:
    return float(np.median(np.abs(errors)))


def report(result: Fit) -> str:
    """What was fitted to what, for the terminal."""
    lines = []
    for quantity, (before, after) in result.errors.items():
        count = sum(result.rows[quantity].values())
        lines.append(f"{quantity}: {count} rows, median error {before:.1%} at the start, {after:.1%} now")
    for constant, value in result.values.items():
        bound = "  at its bound" if constant in result.at_bounds else ""
        lines.append(f"  {constant!s:52s} {value:.4g}{bound}")
    lines += [f"  {constant!s:52s} no row depends on it" for constant in result.idle]
    return "\n".join(lines)


def _provenance(result: Fit) -> str:
    """Lines for the top of the files that a fit writes."""
    rows = [
        f"{quantity}: {sum(count.values())} rows ({', '.join(f'{source} {n}' for source, n in sorted(count.items()))})"
        for quantity, count in result.rows.items()
    ]
    command = "Fitted by `python -m meshwright.plan.fit` to published runs with role `fit`"
    return "\n".join((f"{command} on {date.today().isoformat()};", "free_constants.toml says which.", *rows))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m meshwright.plan.fit", description=str(__doc__).split("\n")[0])
    parser.add_argument("--runs", type=Path, metavar="FILE.csv", help="instead of the catalogue's published runs")
    parser.add_argument("--free", type=Path, metavar="FILE.toml", default=FILE, help="what may change, from where")
    parser.add_argument("--dry-run", action="store_true", help="print the constants, write nothing")
    options = parser.parse_args(arguments)
    try:
        result = fit(read_runs(options.runs) if options.runs else runs(), read_free_constants(options.free))
    except RequestError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(report(result))
    if not options.dry_run:
        for path in save_fit(result.values, _provenance(result)):
            print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
