"""`meshwright estimate`: one layout's memory and time, part by part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from meshwright.cli.job import JobOptions, read_job, takes_job
from meshwright.cli.options import JsonOption
from meshwright.cli.screen import console, print_json

if TYPE_CHECKING:
    from meshwright.cli.job import Job
    from meshwright.cost.result import Estimate

EXAMPLES = (
    "meshwright estimate llama-2-7b --cluster 8xA100-40GB --layout 'fsdp8 mbs2 ac:full'",
    "meshwright estimate gpt3-175b --cluster 1024xA100-80GB --layout 'zero1:16 tp8 pp8:1f1b'",
    "meshwright estimate ./config.json --cluster 8xH100 --layout 'zero2:8' --seq-len 8192 --json",
)


@takes_job
def answer(
    options: JobOptions,
    layout: Annotated[
        str, typer.Option(metavar="LAYOUT", help="How the job is split, as in 'fsdp8 tp4 pp2:1f1b mbs2 ac:selective'.")
    ],
    as_json: JsonOption = False,
) -> int:
    """Price one layout: memory and time part by part, traffic by axis, and what was assumed.

    Exit code 1: it does not fit.
    """
    from meshwright.cost.estimate import estimate
    from meshwright.cost.result import DOES_NOT_FIT
    from meshwright.spec.notation import parse_layout

    job = read_job(options)
    priced = estimate(job.model, job.cluster, job.workload, parse_layout(layout))
    if as_json:
        print_json(_document(job, priced))
    else:
        _show(job, priced)
    return 1 if priced.memory.verdict == DOES_NOT_FIT else 0


def _document(job: Job, priced: Estimate) -> dict[str, object]:
    from meshwright.cli import documents

    return {
        "model": documents.model_document(job.model),
        "cluster": documents.cluster_document(job.cluster),
        "workload": documents.workload_document(job.workload),
        "plan": documents.plan_document(priced),
        "traffic": [documents.traffic_document(traffic) for traffic in priced.traffic],
        "notes": list(job.notes),
    }


def _show(job: Job, priced: Estimate) -> None:
    from meshwright.cli import account

    screen = console()
    for block in account.blocks(job, priced):
        screen.print(block)
