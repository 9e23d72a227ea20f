"""`meshwright estimate`: one layout's memory and time part by part, or several layouts side by side."""

from __future__ import annotations

from collections.abc import Sequence
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
    "meshwright estimate llama-2-7b --cluster 8xA100-40GB --layout 'fsdp8, fsdp4 tp2, ddp2 pp4:{gpipe,1f1b}'",
    "meshwright estimate gpt3-175b --cluster 1024xA100-80GB --layout 'zero1:16 tp8 pp8:1f1b'",
    "meshwright estimate ./config.json --cluster 8xH100 --layout 'zero2:8' --seq-len 8192 --json",
)


@takes_job
def answer(
    options: JobOptions,
    layout: Annotated[
        str,
        typer.Option(
            metavar="LAYOUT",
            help="How the job is split, as in 'fsdp8 tp4 pp2:1f1b mbs2 ac:selective'. "
            "Commas separate several layouts, braces list alternatives: 'pp4:{gpipe,1f1b}'.",
        ),
    ],
    as_json: JsonOption = False,
) -> int:
    """Price one layout: memory and time part by part, traffic by axis, and what was assumed.

    Several layouts: one line each, those that fit first, the fastest on top. Exit code 1: none fits.
    """
    from meshwright.cost.result import DOES_NOT_FIT

    job = read_job(options)
    priced = _price(job, layout)
    if as_json:
        print_json(_document(job, priced))
    else:
        _show(job, priced)
    return 1 if priced[0].memory.verdict == DOES_NOT_FIT else 0


def _price(job: Job, text: str) -> list[Estimate]:
    """Every layout of the list, those that fit first, then by step time. Raises LayoutError, which names the layout."""
    from meshwright.cost.result import DOES_NOT_FIT
    from meshwright.plan.shortlist import simulated_estimate
    from meshwright.spec.errors import LayoutError
    from meshwright.spec.notation import parse_layouts

    layouts = parse_layouts(text)
    priced = []
    for layout in layouts:
        try:
            priced.append(simulated_estimate(job.model, job.cluster, job.workload, layout))
        except LayoutError as error:
            if len(layouts) == 1:
                raise
            raise LayoutError(f"In {layout}: {error}") from error
    return sorted(priced, key=lambda one: (one.memory.verdict == DOES_NOT_FIT, one.step_seconds))


def _document(job: Job, priced: Sequence[Estimate]) -> dict[str, object]:
    from meshwright.cli import documents

    nouns: dict[str, object] = {
        "model": documents.model_document(job.model),
        "cluster": documents.cluster_document(job.cluster),
        "workload": documents.workload_document(job.workload),
    }
    plans = [documents.plan_document(one, rank) for rank, one in enumerate(priced, 1)]
    traffic = [[documents.traffic_document(sent) for sent in one.traffic] for one in priced]
    if len(plans) == 1:
        found: dict[str, object] = {"plan": plans[0], "traffic": traffic[0]}
    else:
        found = {"plans": [plan | {"traffic": sent} for plan, sent in zip(plans, traffic, strict=True)]}
    return nouns | found | {"notes": list(job.notes)}


def _show(job: Job, priced: Sequence[Estimate]) -> None:
    from meshwright.cli import account

    screen = console()
    for block in account.blocks(job, priced[0]) if len(priced) == 1 else account.comparison(job, priced):
        screen.print(block)
