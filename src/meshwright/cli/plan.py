"""`meshwright plan`: the layouts that fit, fastest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from meshwright.cli.job import JobOptions, read_job, takes_job
from meshwright.cli.options import JsonOption, one_of
from meshwright.cli.screen import console, print_json, progress_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.cli.job import Job
    from meshwright.plan.result import Plan
    from meshwright.rehearse.verdicts import Verdict

EXAMPLES = (
    "meshwright plan llama-2-7b --cluster 8xA100-40GB",
    "meshwright plan gpt3-175b --cluster 4096xA100-80GB --global-batch 1536",
    "meshwright plan ./config.json --cluster 4x8xH100 --inter-node 100Gbps --objective memory",
    "meshwright plan mixtral-8x7b --cluster 2x8xH100 --runtime megatron",
    "meshwright plan llama-3.1-8b --cluster 8xH100 --rehearse 2",
    "meshwright plan llama-3-70b --cluster 64xH100 --json | jq '.plans[0].layout'",
)
OBJECTIVES = ("throughput", "memory", "devices")
RUNTIMES = ("pytorch", "megatron", "deepspeed")
SEARCH = "Search"


@takes_job
def answer(
    options: JobOptions,
    objective: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="throughput, memory, or devices (the fewest that fit).",
            autocompletion=one_of(OBJECTIVES),
            rich_help_panel=SEARCH,
        ),
    ] = "throughput",
    top: Annotated[int, typer.Option(metavar="N", min=1, help="Layouts to show.", rich_help_panel=SEARCH)] = 5,
    offload: Annotated[
        bool, typer.Option("--offload", help="Consider keeping states on the host too.", rich_help_panel=SEARCH)
    ] = False,
    runtime: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"Only layouts that this software runs: {', '.join(RUNTIMES)}.",
            autocompletion=one_of(RUNTIMES),
            rich_help_panel=SEARCH,
        ),
    ] = None,
    rehearse: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            help="Rehearse the N best: does our own program agree (docs/rehearse.md).",
            rich_help_panel=SEARCH,
        ),
    ] = 0,
    as_json: JsonOption = False,
) -> int:
    """Find the layouts that fit and rank them; say why the others lost.

    Exit code 1: none fits.
    """
    from meshwright.plan.search import make_plan

    job = read_job(options)
    with progress_line("layouts decided") as progress:
        plan = make_plan(
            job.model,
            job.cluster,
            job.workload,
            objective=objective,
            top=top,
            offload=offload,
            runtime=runtime,
            progress=progress,
        )
    verdicts = _rehearsed(options, plan, rehearse) if rehearse else []
    if as_json:
        print_json(_document(job, plan) | ({"rehearsed": verdicts} if rehearse else {}))
    else:
        _show(job, plan)
        if verdicts:
            _show_verdicts(verdicts)
    return 0 if plan.plans else 1


def _rehearsed(options: JobOptions, plan: Plan, count: int) -> list[Verdict]:
    """What our own program says of the best layouts."""
    from meshwright.cli.job import DEFAULT_CLUSTER, DEFAULT_MODEL
    from meshwright.rehearse.verdicts import verdict_of

    found = []
    with progress_line("layouts rehearsed") as progress:
        for number, estimate in enumerate(plan.plans[:count]):
            progress(number, min(count, len(plan.plans)))
            found.append(verdict_of(options.model or DEFAULT_MODEL, options.cluster or DEFAULT_CLUSTER, estimate))
    return found


def _show_verdicts(verdicts: Sequence[Verdict]) -> None:
    from meshwright.cli.tables import table, titled
    from meshwright.spec.units import binary

    rows = [
        (
            one.layout,
            one.verdict,
            binary(one.planned_bytes),
            "–" if one.rehearsed_bytes is None else binary(one.rehearsed_bytes),
            one.reason,
        )
        for one in verdicts
    ]
    names = ("layout", "verdict", ">planned peak", ">rehearsed peak", "why")
    console().print(titled("Rehearsed: the program of `meshwright train`, without GPUs", table(names, rows)))


def _document(job: Job, plan: Plan) -> dict[str, object]:
    from meshwright.cli import documents

    return {
        "model": documents.model_document(job.model),
        "cluster": documents.cluster_document(job.cluster),
        "workload": documents.workload_document(job.workload),
        "searched": plan.searched,
        "memory_priced": plan.memory_priced,
        "feasible": plan.feasible,
        "simulated": plan.simulated,
        "seconds": plan.seconds,
        "plans": [documents.plan_document(priced, rank) for rank, priced in enumerate(plan.plans, 1)],
        "rejected": plan.rejected,
        "advice": plan.advice,
        "warnings": plan.warnings,
        "pareto": plan.pareto,
        "nearest": [documents.near_document(near) for near in plan.nearest],
        "notes": list(job.notes),
        "by_runtime": plan.by_runtime,
        "beaten": plan.beaten,
        "error": plan.error,
        "remedies": plan.remedies,
        "devices_used": plan.plans[0].layout.devices if plan.plans else None,
    }


def _show(job: Job, plan: Plan) -> None:
    from meshwright.cli import ranking

    screen = console()
    for block in ranking.blocks(job, plan):
        screen.print(block)
