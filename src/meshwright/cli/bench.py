"""`meshwright bench`: layouts side by side on the same work, measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshwright.cli.options import JsonOption, complete_model, one_of
from meshwright.cli.screen import console, print_error, print_json

if TYPE_CHECKING:
    from meshwright.bench.crew import Crew, Outcome
    from meshwright.bench.order import Run
    from meshwright.bench.result import Bench, Row
    from meshwright.bench.sweep import Sweep

EXAMPLES = (
    "meshwright bench",
    "meshwright bench --layouts 'ddp4, zero1:4, fsdp2 tp2' --model bench-6m",
    "meshwright bench --sweep mbs=1,2,4 ddp2 'pp2:{gpipe,1f1b,zbvzerobubble}'",
    "meshwright bench fsdp8 'fsdp4 tp2' --model llama-3.2-1b --precision bf16",
    "meshwright bench ddp4 pp4:1f1b --cluster this-machine.toml --out runs/four",
)
TOLD_DRIFT = 0.1
DEFAULT = "ddp2, zero1:2, fsdp2, tp2, pp2:1f1b"
COLUMNS = ("layout", *">step >± >tokens/s >memory >sent >exposed >bubble >error >predicted >places status".split())
NARROW = ("places", "error", "sent", "bubble", "exposed", "predicted", "±")


def answer(
    more: Annotated[list[str] | None, typer.Argument(metavar="[LAYOUTS]...", help="More layouts.")] = None,
    layouts: Annotated[
        str, typer.Option(metavar="LAYOUTS", help=f"Layouts, separated by commas. Without any: {DEFAULT}.")
    ] = "",
    sweep: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUES", help="Each layout under each value: mbs=1,2,4 or ac=none,full."),
    ] = None,
    model: Annotated[
        str, typer.Option(metavar="MODEL", help="A preset or a config.json.", autocompletion=complete_model)
    ] = "tiny-llama",
    seq_len: Annotated[int, typer.Option(metavar="N", min=1, help="Tokens a sequence.")] = 256,
    global_batch: Annotated[int, typer.Option(metavar="N", min=1, help="Sequences a step, over all ranks.")] = 16,
    precision: Annotated[
        str, typer.Option(metavar="NAME", help="fp32, bf16 or fp16.", autocompletion=one_of(("fp32", "bf16", "fp16")))
    ] = "fp32",
    optimizer: Annotated[str, typer.Option(metavar="NAME", help="As in train: adamw, sgd, muon, ….")] = "adamw",
    data: Annotated[
        str, typer.Option(metavar="SOURCE", help="As in train: synthetic:chain, stdlib, files.")
    ] = "synthetic:chain",
    steps: Annotated[int, typer.Option(metavar="N", min=1, help="Timed steps of a run.")] = 10,
    warm_up: Annotated[int, typer.Option(metavar="N", min=2, help="Steps before them.")] = 3,
    trace: Annotated[int, typer.Option(metavar="N", min=0, help="Traced steps after them; 0: no timeline.")] = 2,
    repeats: Annotated[int, typer.Option(metavar="N", min=1, help="Runs of each layout.")] = 2,
    baseline: Annotated[
        str, typer.Option(metavar="LAYOUT", help="What the others are compared with; it runs between them.")
    ] = "",
    single: Annotated[
        bool, typer.Option("--single/--no-single", help="Run one process, too, to hold losses against.")
    ] = True,
    cluster: Annotated[
        str, typer.Option(metavar="CLUSTER", help="What predictions are made for: 8xH100, or comms's TOML file.")
    ] = "",
    compile_: Annotated[bool, typer.Option("--compile", help="torch.compile each block.")] = False,
    device: Annotated[str, typer.Option(metavar="NAME", help="auto, cuda or cpu.")] = "auto",
    timeout: Annotated[float, typer.Option(metavar="SECONDS", min=1, help="Of one run.")] = 900.0,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Of the order of the runs.")] = 0,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Of the bench; without: runs/bench-MODEL.", show_default=False)
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure anew what the folder holds already.")] = False,
    as_json: JsonOption = False,
) -> int:
    """Measure which layout is really fastest here, and whether the plan was right.

    Each layout trains the same model on the same global batches in ranks that have run nothing before, in random
    order, several times, the baseline between them. One that crashes or runs out of memory is a row with its reason.
    The same command goes on where an interrupted one stopped.

    In the folder: report.html (rewritten after every run), results.json, pictures, and a merged trace of each layout
    for Perfetto. Exit code 1: no layout could be measured.
    """
    from meshwright.bench.request import Request, layouts_of
    from meshwright.bench.sweep import Sweep
    from meshwright.spec.notation import format_layout, parse_layout

    flags = {
        "model": model, "train.seq_len": str(seq_len), "train.global_batch": str(global_batch),
        "train.precision": precision, "optimizer.name": optimizer, "data.source": data, "launch.device": device,
        "train.steps": str(warm_up + steps + trace + 1), "cluster": cluster,
        "train.compile": str(compile_).lower(),
    }  # fmt: skip
    rows = layouts_of([layouts, *(more or ())] if layouts or more else [DEFAULT], sweep or [])
    request = Request(
        rows, {name: text for name, text in flags.items() if text}, steps, warm_up, trace, repeats,
        format_layout(parse_layout(baseline)) if baseline else "", single, seed, timeout,
    )  # fmt: skip
    folder = out or Path("runs") / f"bench-{Path(model).stem if '/' in model else model}"
    sweep_ = Sweep(request, folder, fresh=fresh)
    crew = _crew(sweep_)
    found = _measure(sweep_, folder, crew)
    if crew is not None and not crew.first:
        return 0
    if as_json:
        print_json(found)
    else:
        _show(found, folder)
    return 0 if any(row.step for row in found.rows) else 1


def _crew(sweep: Sweep) -> Crew | None:
    """The ranks that torchrun or Slurm has started; None: there are none, and the sweep starts its own.

    Raises LaunchError: they are fewer than the largest layout needs.
    """
    from meshwright.train.launch.environment import read_place
    from meshwright.train.launch.errors import LaunchError

    place = read_place()
    if place.launcher == "single":
        return None
    if place.world_size < sweep.largest.ranks:
        raise LaunchError(
            f"The largest layout needs {sweep.largest.ranks} ranks, {place.launcher} started {place.world_size}."
        )
    from meshwright.bench.joined import JoinedCrew

    return JoinedCrew(place)


def _measure(sweep: Sweep, folder: Path, crew: Crew | None) -> Bench:
    """Run what is left, with a line a run on stderr; results.json and the page are rewritten after each."""
    from meshwright.bench.documents import write_results

    total, writes = len(sweep.order), crew is None or crew.first

    def tell(run: Run, outcome: Outcome) -> None:
        if writes:
            print_error(f"{run.index + 1:3d} of {total}: {run.label}: {_told(outcome)}", label="")

    if writes:
        _announce(sweep, folder)
    found = None
    try:
        for found in sweep.run(crew, tell):
            if writes:
                write_results(found, folder)
                _write_page(found, folder, last=found.finished == total)
    finally:
        if crew is not None:
            crew.close()
    assert found is not None
    return found


def _announce(sweep: Sweep, folder: Path) -> None:
    """What will be done, and what cannot be, before anything takes time."""
    for entry in sweep.entries.values():
        if entry.job is None:
            print_error(f"{entry.label} is left out: {entry.refused}", label="")
    rows = sum(entry.job is not None for entry in sweep.entries.values())
    print_error(
        f"{len(sweep.order)} runs of {rows} rows, baseline {sweep.baseline}, in {folder}; "
        "interrupted, the same command goes on",
        label="",
    )


def _told(outcome: Outcome) -> str:
    from statistics import median

    from meshwright.bench.rows import slowest_steps
    from meshwright.spec.units import binary, duration

    if not outcome.ranks:
        return f"{outcome.status}: {outcome.reason}"
    step = median(slowest_steps(outcome.ranks))
    return f"{duration(step)} a step, {binary(max(one['memory_bytes'] for one in outcome.ranks))}"


def _write_page(bench: Bench, folder: Path, *, last: bool) -> None:
    """The report, where what draws it is installed."""
    from meshwright.report import ReportError, write_report

    try:
        write_report(bench, folder, pictures=last, running=not last)
    except ReportError as error:
        if last:
            print_error(str(error), label="no report.html: ")


def _show(bench: Bench, folder: Path) -> None:
    from meshwright.cli.tables import table

    screen = console()
    screen.print(table(COLUMNS, [_cells(row) for row in bench.rows], drop=NARROW))
    agreed = bench.agreement
    if agreed is not None:
        order = "" if agreed.spearman is None else f"Spearman {agreed.spearman:.2f}, "
        screen.print(
            f"The plan: {order}regret {agreed.regret:.1%}, median step time error {agreed.median_step_error:.1%} over "
            f"{agreed.rows} rows."
        )
    if bench.drift > TOLD_DRIFT:
        screen.print(
            f"The machine drifted: the baseline's own runs differ by {bench.drift:.0%}. That is taken out of the step "
            "times; measure again on a quiet machine."
        )
    missing = next((row.prediction_missing for row in bench.rows if row.prediction_missing), "")
    if missing:
        screen.print(missing)
    screen.print(f"Report: {folder / 'report.html'}" if (folder / "report.html").exists() else f"Results: {folder}")


def _cells(row: Row) -> tuple[str, ...]:
    from meshwright.spec.units import binary, duration, percent

    sent = sum(line.bytes for line in row.traffic)
    known = row.step is not None
    return (
        row.label,
        duration(row.step.median) if row.step else "–",
        percent(row.step.spread / 2) if row.step else "–",
        f"{row.tokens_per_second:,.0f}" if row.tokens_per_second else "–",
        binary(row.memory_bytes) if row.memory_bytes is not None else "–",
        binary(sent) if known else "–",
        duration(row.activity.exposed) if row.activity else "–",
        percent(row.bubble) if row.bubble is not None else "–",
        f"{row.loss_error:.0e}" if row.loss_error is not None else "–",
        duration(row.predicted.step_seconds) if row.predicted else "–",
        f"{row.measured_place}/{row.predicted_place}" if row.measured_place else "–",
        row.status if not row.reason else f"{row.status}: {row.reason}",
    )
