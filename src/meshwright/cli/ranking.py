"""A Plan for people: the ranked layouts with bars, why others lost, advice, and the nearest published runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from meshwright.cli.account import heading, remarks
from meshwright.cli.bars import bar
from meshwright.cli.tables import table, titled
from meshwright.spec.notation import format_layout
from meshwright.spec.units import duration, gib, percent

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.text import Text

    from meshwright.cli.job import Job
    from meshwright.cost.result import Estimate
    from meshwright.plan.evidence import NearRun
    from meshwright.plan.result import ParetoPoint, Plan, RuntimeBest

BAR_WIDTH = 12
LEANER = 0.93
"""The next layout that is shown of the line of time against memory needs at most this share of the last one's."""


def blocks(job: Job, plan: Plan) -> Iterator[RenderableType]:
    """What `meshwright plan` prints, from top to bottom; the answer comes last."""
    from meshwright.plan.remedies import told

    searched = (
        f"{plan.searched:,} layouts searched in {duration(plan.seconds)}: {plan.memory_priced:,} priced in bytes, "
        f"{plan.feasible:,} fit and priced in seconds, {plan.simulated} simulated."
    )
    yield heading(job, searched)
    if plan.plans:
        yield ""
        yield ranked_table(plan.plans)
    if plan.plans and plan.by_runtime:
        yield runtime_block(plan.by_runtime)
    if len(plan.pareto) > 1:
        yield pareto_block(plan.pareto, job.cluster.device.memory_bytes)
    if plan.rejected:
        rows = [(f"{lost.count:,}", lost.reason, lost.example) for lost in plan.rejected]
        yield titled("Why the others lost", table((">layouts", "because", "for example"), rows))
    if plan.nearest:
        yield published_block(plan.nearest)
        yield remarks("How far to trust this", trust(job, plan))
    yield remarks("Advice", plan.advice)
    yield remarks("Warnings", plan.warnings)
    if plan.remedies:
        capacity = job.cluster.device.memory_bytes
        yield remarks("What would make it fit", [told(remedy, capacity) for remedy in plan.remedies])
    yield answer_line(plan, job.cluster.devices)


def ranked_table(plans: Sequence[Estimate]) -> RenderableType:
    """Layouts by rank, with bars of time (against the slowest shown) and memory (against the device)."""
    slowest = max(priced.step_seconds for priced in plans)
    rows = [
        (
            f"{rank}",
            format_layout(priced.layout),
            duration(priced.step_seconds),
            bar(priced.step_seconds / slowest, BAR_WIDTH),
            f"{priced.tokens_per_second_per_device:,.0f}",
            percent(priced.mfu),
            gib(priced.memory.reserved_bytes),
            bar(priced.memory.reserved_bytes / priced.memory.capacity_bytes, BAR_WIDTH),
            priced.memory.verdict,
        )
        for rank, priced in enumerate(plans, 1)
    ]
    columns = (">", "layout", ">step", "", ">tokens/s/device", ">MFU", ">memory", "", "")
    return table(columns, rows, drop=("MFU", "tokens/s/device"))


def runtime_block(bests: Sequence[RuntimeBest]) -> Group:
    """For each runtime the best layout that it runs as it stands."""
    rows = []
    for runtime, best in ((each.runtime, each.best) for each in bests):
        if best is None:
            rows.append((runtime, "runs no layout that fits", "", "", ""))
        else:
            rows.append((runtime, best.layout, duration(best.step_seconds), gib(best.reserved_bytes), best.verdict))
    columns = ("runtime", "layout", ">step", ">memory", "")
    return titled("Best that each runtime can run (--runtime searches for one of them)", table(columns, rows))


def pareto_block(points: Sequence[ParetoPoint], capacity_bytes: float) -> Group:
    """Layouts that no other beats in both time and memory, fastest first; every one is in the JSON."""
    shown = [points[0]]
    for point in points:
        if point.reserved_bytes <= LEANER * shown[-1].reserved_bytes:
            shown.append(point)
    slowest = max(point.step_seconds for point in shown)
    rows = [
        (
            duration(point.step_seconds),
            bar(point.step_seconds / slowest, BAR_WIDTH),
            gib(point.reserved_bytes),
            bar(point.reserved_bytes / capacity_bytes, BAR_WIDTH),
            point.verdict,
            point.layout,
        )
        for point in shown
    ]
    return titled("Time against memory", table((">step", "", ">memory", "", "", "layout"), rows))


def published_block(runs: Sequence[NearRun]) -> Group:
    """Published runs with the figure that was measured, and the one that is predicted of the same run."""
    rows = [
        (
            run.id,
            run.model_name,
            f"{run.devices}×{run.device}",
            run.text("precision"),
            run.layout,
            f"{run.text('seq_len')} × {run.text('global_batch')}",
            f"{run.tokens_per_second_per_device or 0.0:,.0f}",
            duration(run.step_seconds or 0.0),
            duration(near.predicted_seconds) if near.predicted_seconds is not None else "not enough is stated",
            f"{near.error:+.1%}" if near.error is not None else "",
        )
        for near in runs
        for run in (near.run,)
    ]
    columns = (
        "run", "model", "devices", "precision", "layout", ">seq × batch", ">tokens/s/device",
        ">measured", ">predicted", ">error",
    )  # fmt: skip
    shown = table(columns, rows, drop=("tokens/s/device", "seq × batch", "precision", "model"))
    return titled("Nearest published runs: a step as measured, and as predicted of that very run", shown)


def trust(job: Job, plan: Plan) -> list[str]:
    """How wrong predictions of runs like this are, and what software they assume."""
    chosen, error = job.workload.implementation, plan.error
    lines = [f"The plan assumes software of class {chosen}."]
    if chosen == "fused":
        lines = [f"The plan assumes well-tuned software, class {chosen}; --implementation eager prices plain PyTorch."]
    if error is not None:
        half, most = percent(error.median), percent(error.p90)
        lines.insert(
            0, f"Of the {error.rows} nearest runs half are predicted within {half}, nine of ten within {most}."
        )
    return lines


def answer_line(plan: Plan, devices: int) -> Text:
    """The answer in one line, and in a second one why it is not the fastest."""
    from rich.text import Text

    if not plan.plans:
        return Text("\nNo layout fits.", style="bold")
    best = plan.plans[0]
    memory = best.memory
    fewer = f" on {best.layout.devices:,} of {devices:,} devices" if best.layout.devices < devices else ""
    beaten = plan.beaten
    simpler = ""
    if beaten is not None:
        simpler = f"\nWithin 1 % of the best, {beaten.layout} ({duration(beaten.step_seconds)}), and simpler."
    return Text(
        f"\nUse {format_layout(best.layout)}{fewer}: {duration(best.step_seconds)} a step, "
        f"{best.tokens_per_second_per_device:,.0f} tokens/s a device, {gib(memory.reserved_bytes)} of "
        f"{gib(memory.capacity_bytes)}, {memory.verdict}.{simpler}",
        style="bold",
    )
