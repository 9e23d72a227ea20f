"""The sweep: one process, then each layout on ranks that are started once."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from meshwright.check.case import TOLERANCE, Case, with_micro_batches
from meshwright.check.explain import explain
from meshwright.check.merge import Comparison, compare, reference_scales
from meshwright.check.program import run_layout
from meshwright.check.reference import write_reference
from meshwright.check.result import CheckResult, LayoutResult, Worst
from meshwright.check.traffic import compare_traffic
from meshwright.spec.errors import LayoutError
from meshwright.spec.layout import Layout
from meshwright.spec.notation import format_layout
from meshwright.train.launch.pool import RankPool, reference_to
from meshwright.train.models.build import load_architecture

ACCUMULATIONS = (1, 2)
SECONDS = 120.0
"""A layout's runs take a few seconds; after this long something hangs."""


class Sweep:
    """`check` as a sequence of results, one a layout. A context manager: it starts and ends the ranks."""

    def __init__(
        self,
        case: Case,
        layouts: Sequence[Layout],
        *,
        pool: RankPool | None = None,
        prepare: Callable[[], AbstractContextManager[object]] | None = None,
    ) -> None:
        """`prepare`, a top-level function, is called around every run of a layout in every rank."""
        self.case, self.layouts = case, list(layouts)
        self._prepare = reference_to(prepare) if prepare else None
        self._runs = {layout: _runs(layout, case) for layout in self.layouts}
        self._given = pool
        self.pool = pool or RankPool(max(layout.devices for layout in self.layouts))
        self._folder = tempfile.TemporaryDirectory(prefix="meshwright-check-")

    def __enter__(self) -> Sweep:
        if self._given is None:
            self.pool.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._given is None:
            self.pool.close()
        self._folder.cleanup()

    def run(self, tell: Callable[[int, int], None] | None = None) -> CheckResult:
        """All layouts in order; `tell(done, total)` after each."""
        path = str(Path(self._folder.name) / "reference.pt")
        known = self.pool.run(write_reference, self.case, path, world=1, timeout=SECONDS)[0]
        scales = reference_scales(path, TOLERANCE[self.case.dtype])
        found = []
        for done, layout in enumerate(self.layouts, 1):
            found.append(self._one(layout, path, known, scales))
            if tell:
                tell(done, len(self.layouts))
        parameters = sum(math.prod(shape) for shape in known["shapes"].values())
        return CheckResult(
            self.case.model, self.case.dtype, parameters, tuple(known["loss"]), tuple(known["grad_norm"]), tuple(found)
        )

    def _one(
        self, layout: Layout, path: str, known: Mapping[str, Any], scales: Mapping[str, Sequence[float]]
    ) -> LayoutResult:
        runs = self._runs[layout]
        comparisons: list[Comparison] = []
        seconds = 0.0
        for run in runs:
            try:
                reports = self.pool.run(
                    run_layout, self.case, run, path, self._prepare, world=run.devices, timeout=SECONDS
                )  # fmt: skip
            except Exception as error:  # whatever it is, the other layouts are still worth a look
                return _crashed(layout, runs, self.case, error)
            seconds += max(report.seconds for report in reports)
            comparisons.append(compare(reports, known, scales))
        return _judged(layout, runs, comparisons, self.case, known, seconds)


def _runs(layout: Layout, case: Case) -> list[Layout]:
    """The layout with as many micro-batches as each accumulation asks for. Raises LayoutError where none fits."""
    runs = [run for n in ACCUMULATIONS if (run := with_micro_batches(layout, case, n)) is not None]
    if not runs:
        unit = layout.data * layout.pipeline * (2 if layout.schedule == "dualpipev" and layout.pipeline > 1 else 1)
        raise LayoutError(
            f"{format_layout(layout)} cannot split a global batch of {case.global_batch} sequences.",
            legal=[f"--global-batch {2 * unit}"],
        )
    return runs


def _judged(
    layout: Layout,
    runs: Sequence[Layout],
    comparisons: Sequence[Comparison],
    case: Case,
    known: Mapping[str, Any],
    seconds: float,
) -> LayoutResult:
    tolerance = TOLERANCE[case.dtype]
    shapes = known["shapes"]
    complete = all(c.covered.get(name, 0) == math.prod(shape) for c in comparisons for name, shape in shapes.items())
    traffic, sent = compare_traffic(case, runs[-1], comparisons[-1])
    gradient = _worst([c.gradient_errors for c in comparisons])
    update = _worst([c.update_errors for c in comparisons])
    loss_error = max(c.loss_error for c in comparisons)
    norm_error = max(c.grad_norm_error for c in comparisons)
    identical = not any(c.differing_axes for c in comparisons)
    errors = (loss_error, norm_error, gradient.error, update.error)
    right = complete and identical and all(error <= tolerance for error in errors)
    told = ""
    if not right:
        told = explain(case, list(zip(runs, comparisons, strict=True)), known, tolerance) or "differs beyond rounding"
    return LayoutResult(
        layout=format_layout(replace(layout, micro_batch=1)),
        passed=right and not sent,
        devices=layout.devices,
        micro_batches=tuple(case.global_batch // (run.data * run.micro_batch) for run in runs),
        loss_error=loss_error,
        grad_norm_error=norm_error,
        worst_gradient=gradient,
        worst_update=update,
        parameters=max(sum(c.covered.values()) for c in comparisons),
        replicas_identical=identical,
        explanation="; ".join(text for text in (told, sent) if text),
        tolerance=tolerance,
        traffic=traffic,
        seconds=seconds,
    )


def _worst(errors: Sequence[Mapping[str, Sequence[float]]]) -> Worst:
    pairs: Iterator[tuple[float, str]] = ((max(of_steps), name) for one in errors for name, of_steps in one.items())
    error, name = max(pairs, default=(math.inf, ""))
    return Worst(name, error)


def _crashed(layout: Layout, runs: Sequence[Layout], case: Case, error: BaseException) -> LayoutResult:
    cause = str(error).strip().splitlines()
    places = re.findall(r'File "(?:.*/)?([^"/]+/[^"/]+)", line (\d+)', str(error.__cause__ or error))
    where = f" ({':'.join(places[-1])})" if places else ""
    told = f"{type(error).__name__}: {cause[0] if cause else ''}{where}"
    nothing = Worst("", math.inf)
    return LayoutResult(
        layout=format_layout(replace(layout, micro_batch=1)),
        passed=False,
        devices=layout.devices,
        micro_batches=tuple(case.global_batch // (run.data * run.micro_batch) for run in runs),
        loss_error=math.inf,
        grad_norm_error=math.inf,
        worst_gradient=nothing,
        worst_update=nothing,
        parameters=0,
        replicas_identical=False,
        explanation=f"did not run: {told}",
        tolerance=TOLERANCE[case.dtype],
    )


def check_layouts(case: Case, layouts: Sequence[Layout], tell: Callable[[int, int], None] | None = None) -> CheckResult:
    """Compare each layout with one process. Raises LayoutError and ModelError before anything starts."""
    if not layouts:
        raise LayoutError(
            f"No layout of so few ranks divides {case.model} and {case.global_batch} sequences.", ["ddp2"]
        )
    load_architecture(case.model)
    with Sweep(case, layouts) as sweep:
        return sweep.run(tell)
