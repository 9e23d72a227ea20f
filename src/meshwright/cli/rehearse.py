"""`meshwright rehearse`: the real program for one rank of a cluster that is not here."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meshwright.cli.options import JsonOption, complete_cluster, complete_model, one_of
from meshwright.cli.screen import console, print_error, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from meshwright.rehearse.compare import Line
    from meshwright.rehearse.result import RankRehearsal
    from meshwright.train.config.job import Job

EXAMPLES = (
    "meshwright rehearse llama-3.1-8b --cluster 8xH100 --layout fsdp8",
    "meshwright rehearse mixtral-8x7b --cluster 4x8xH100 --layout 'fsdp32 ep8'",
    "meshwright rehearse gpt2 --cluster 8xA100-40GB --layout 'ddp2 pp4:1f1b' --rank 6",
    "meshwright rehearse llama-3.1-8b --cluster 8xH100 --layout fsdp8 --out out --json",
)
RANKS = ("stage-firsts", "all-distinct")
PRECISIONS = ("fp32", "bf16", "fp16")
TOP = 8
"""Modules of the table of activations."""


def answer(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A preset or a config.json.", autocompletion=complete_model)
    ],
    layout: Annotated[str, typer.Option(metavar="LAYOUT", help="How the job is split, as in 'fsdp8 tp4 mbs2'.")],
    cluster: Annotated[
        str, typer.Option(metavar="CLUSTER", help="8xH100 or a TOML file.", autocompletion=complete_cluster)
    ],
    rank: Annotated[int | None, typer.Option(metavar="N", min=0, help="The rank to rehearse; 0 if not given.")] = None,
    ranks: Annotated[
        str | None,
        typer.Option(
            metavar="WHICH",
            help="Several: stage-firsts (one a pipeline rank), or all-distinct (also those with other pieces).",
            autocompletion=one_of(RANKS),
        ),
    ] = None,
    seq_len: Annotated[int | None, typer.Option(metavar="N", min=1, help="Tokens a sequence.")] = None,
    global_batch: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Sequences a step, over all ranks.")
    ] = None,
    precision: Annotated[
        str, typer.Option(metavar="NAME", help="fp32, bf16 or fp16.", autocompletion=one_of(PRECISIONS))
    ] = "bf16",
    optimizer: Annotated[str, typer.Option(metavar="NAME", help="adamw, sgd or lamb.")] = "adamw",
    steps: Annotated[
        int, typer.Option(metavar="N", min=1, max=10, help="Steps; the first one allocates optimizer states.")
    ] = 2,
    imbalance: Annotated[
        float,
        typer.Option(metavar="X", min=0.01, help="Rows that this rank's experts get, relative to balanced routing."),
    ] = 1.0,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write the memory's chart, timeline and snapshot, and collectives there."),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Run the real training step of a rank without any GPU: memory, FLOPs and collectives, beside the formulas.

    Parameters and activations are tensors without numbers, and the process group talks to nobody; everything else is
    the program that `train` runs. Exit code 1: a formula and the program disagree.
    """
    from meshwright.rehearse.compare import compare_rank, confirmed
    from meshwright.rehearse.hosted import host_lines
    from meshwright.rehearse.session import ranks_of, rehearse_ranks
    from meshwright.spec.errors import RequestError
    from meshwright.train.metrics.prediction import predict

    if rank is not None and ranks is not None:
        raise RequestError("Give --rank or --ranks, not both.")
    if not math.isfinite(imbalance):
        raise RequestError(f"--imbalance is {imbalance}.", ["a number above 0"])
    if out is not None:
        _make(out)
    job = _job(model, cluster, layout, seq_len, global_batch, precision, optimizer)
    chosen = ranks_of(job.layout, ranks if ranks is not None else str(rank or 0))

    def tell(found: RankRehearsal) -> None:
        print_error(f"rank {found.rank} rehearsed in {found.seconds:.1f} s, {found.operations:,} operations", label="")

    found = rehearse_ranks(
        job, chosen, steps=steps, imbalance=imbalance, history=out is not None, tell=None if as_json else tell
    )
    estimate = predict(job).estimate
    compared = [compare_rank(job, one, imbalance) + host_lines(job, one, estimate) for one in found]
    written = _write(job, found, out) if out is not None else []
    if as_json:
        print_json(_document(job, found, compared, written))
    else:
        _show(job, found, compared, written)
    return 0 if all(confirmed(lines) for lines in compared) else 1


def _job(
    model: str, cluster: str, layout: str, seq_len: int | None, global_batch: int | None, precision: str, optimizer: str
) -> Job:
    from meshwright.plan.defaults import choose_global_batch, choose_seq_len
    from meshwright.rehearse.job import make_job
    from meshwright.spec.cluster_text import parse_cluster
    from meshwright.train.config.models import model_to_train

    known = model_to_train(model)
    tokens = seq_len or choose_seq_len(known)
    batch = global_batch or choose_global_batch(known, parse_cluster(cluster), tokens)
    return make_job(
        model, cluster, layout, seq_len=tokens, global_batch=batch, precision=precision, optimizer=optimizer
    )


def _make(folder: Path) -> None:
    """Know before the long work that there is room for its files. Raises RequestError."""
    from meshwright.spec.errors import RequestError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"Cannot write into {folder}: {error.strerror}.") from error


def _write(job: Job, found: list[RankRehearsal], folder: Path) -> list[Path]:
    from meshwright.rehearse.exports import write_exports
    from meshwright.report import ReportError
    from meshwright.report.rehearsed import write_memory
    from meshwright.spec.errors import RequestError

    assert job.cluster is not None
    try:
        written = [path for one in found for path in write_exports(one, folder)]
    except OSError as error:
        raise RequestError(f"Cannot write into {folder}: {error.strerror}.") from error
    try:
        return written + [
            path for one in found for path in write_memory(one, job.cluster.device, _facts(job, one), folder)
        ]
    except ReportError as error:
        print_error(f"{error} The other files are written.")
        return written


def _facts(job: Job, one: RankRehearsal) -> dict[str, str]:
    """What the page of a rank says of its job."""
    work = job.workload
    return {
        "model": job.model.name,
        "layout": str(job.layout),
        "cluster": job.cluster.name if job.cluster else "",
        "sequence length": f"{work.seq_len:,}",
        "global batch": f"{work.global_batch:,}",
        "precision": work.precision,
        "optimizer": work.optimizer,
        "pipeline rank": str(one.pipeline_rank) if job.layout.pipeline > 1 else "",
    }


def _document(job: Job, found: list[RankRehearsal], compared: list[list[Line]], written: list[Path]) -> dict[str, Any]:
    from meshwright.cli.documents import cluster_document, model_document, workload_document
    from meshwright.cli.screen import plain
    from meshwright.rehearse.assumptions import assumptions

    assert job.cluster is not None
    ranks = []
    for one, lines in zip(found, compared, strict=True):
        document = plain(one)
        del document["history"], document["stack"]
        judged = [plain(line) | {"difference": line.difference, "agrees": line.agrees} for line in lines]
        ranks.append(document | {"compared": judged})
    return {
        "model": model_document(job.model),
        "cluster": cluster_document(job.cluster),
        "workload": workload_document(job.workload),
        "layout": str(job.layout),
        "ranks": ranks,
        "assumptions": list(assumptions(job)),
        "files": [str(path) for path in written],
    }


def _show(job: Job, found: list[RankRehearsal], compared: list[list[Line]], written: list[Path]) -> None:
    from meshwright.rehearse.assumptions import assumptions

    screen = console()
    screen.print(
        f"{job.model.name} on {job.cluster.name if job.cluster else '?'}, {job.layout}: sequences of "
        f"{job.workload.seq_len:,}, {job.workload.global_batch:,} a step, {job.workload.precision}",
        style="bold",
    )
    for one, lines in zip(found, compared, strict=True):
        _show_rank(screen, job, one, lines)
    screen.print()
    if len(found) > 1:
        most = max(found, key=lambda one: one.peak_bytes)
        screen.print(f"The fullest of these is rank {most.rank}. {_room(job, most)}", markup=False)
    for line in assumptions(job):
        screen.print(f"Assumed: {line}", markup=False)
    for path in written:
        screen.print(f"wrote {path}", markup=False)


def _show_rank(screen: Console, job: Job, one: RankRehearsal, lines: list[Line]) -> None:
    from meshwright.cli.bars import bar
    from meshwright.cli.tables import table, titled
    from meshwright.spec.units import binary

    place = f", pipeline rank {one.pipeline_rank}" if job.layout.pipeline > 1 else ""
    screen.print()
    screen.print(f"Rank {one.rank}{place}: peak {binary(one.peak_bytes)} at {one.peak}", markup=False)
    screen.print(_room(job, one), markup=False)
    rows = [(name, binary(size), bar(size / one.peak_bytes)) for name, size in one.parts.items()]
    screen.print(titled("Memory at the peak", table(("part", ">bytes", "share"), rows)))
    if one.host_bytes:
        rows = [(name, binary(size), bar(size / one.host_bytes)) for name, size in one.host_parts.items()]
        screen.print(titled(_hosted(job, one), table(("part", ">bytes", "share"), rows)))
    if one.activations:
        kept = list(one.activations.items())
        modules = [(module or "(loss, tables)", binary(size)) for module, size in kept[:TOP]]
        rest = sum(size for _, size in kept[TOP:])
        modules += [(f"{len(kept) - TOP} more", binary(rest))] if rest else []
        screen.print(titled("What waits for backward, by module", table(("module", ">bytes"), modules)))
    cells = [_cells(line) for line in lines]
    names = ("what", ">rehearsed", ">formula", ">difference", "")
    screen.print(titled("The program beside the formulas, one step", table(names, cells)))


def _room(job: Job, one: RankRehearsal) -> str:
    """Whether the rank fits its device, with what a rehearsal does not see."""
    from meshwright.cost.verdict import verdict, with_reserve
    from meshwright.spec.units import binary

    assert job.cluster is not None
    device = job.cluster.device
    need = float(with_reserve(one.peak_bytes, device))
    return (
        f"With fragmentation, context and communication buffers {binary(need)} of {binary(device.memory_bytes)}: "
        f"{verdict(need, device.memory_bytes)}"
    )


def _hosted(job: Job, one: RankRehearsal) -> str:
    """The host's memory in words: this rank's share, and that of all devices of its node."""
    from meshwright.rehearse.hosted import sharers
    from meshwright.spec.units import binary

    assert job.cluster is not None
    node = sharers(job) * one.host_bytes
    return (
        f"In the host's memory: {binary(one.host_bytes)}; of the {sharers(job)} devices of a node {binary(node)}, "
        f"and it has {binary(job.cluster.host_memory_bytes)}"
    )


def _cells(line: Line) -> tuple[str, ...]:
    from meshwright.spec.units import binary, flops

    def told(value: float | None) -> str:
        if value is None:
            return "–"
        if line.unit == "bytes":
            return binary(value)
        return flops(value).removesuffix("/s") if line.unit == "flops" else f"{value:,.0f}"

    off = line.difference
    shown = "–" if off is None else ("none" if abs(off) < 1e-9 else f"{off:+.1%}")
    judged = "DISAGREES" if not line.agrees else "not judged" if line.tolerance is None else ""
    if not judged and line.tolerance is not None and line.tolerance > 1e-6:
        judged = f"within {line.tolerance:.0%}"
    what = line.name if line.unit != "collectives" else f"{line.name}s"
    return (what, told(line.rehearsed), told(line.formula), shown, judged)
