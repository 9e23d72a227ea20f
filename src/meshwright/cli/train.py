"""`meshwright train`: train a language model under any layout, here or under torchrun or Slurm."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meshwright.cli.options import JsonOption
from meshwright.cli.screen import print_error, print_json, progress_line
from meshwright.cli.train_options import takes_config

if TYPE_CHECKING:
    from meshwright.train.config.job import Job
    from meshwright.train.metrics.prediction import Prediction

EXAMPLES = (
    "meshwright train",
    "meshwright train --layout 'fsdp2 tp2' --train.steps 100 --data.source ./corpus.jsonl",
    "meshwright train run.toml --optimizer.lr 1e-4 --run runs/lower-rate",
    "meshwright train --model llama-3.2-1b --layout fsdp8 --train.precision bf16 --cluster 8xH100 --dry-run",
    "meshwright train --show-config > run.toml",
)


@takes_config
def answer(
    flags: Mapping[str, str],
    config: Annotated[
        Path | None,
        typer.Argument(metavar="CONFIG.toml", help="A configuration; flags win over it.", show_default=False),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, print the layout and its prediction, start nothing.")
    ] = False,
    show_config: Annotated[
        bool, typer.Option("--show-config", help="Print the resolved configuration as TOML, start nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Train a language model under any layout.

    Without anything: a small Llama, byte by byte on Python's own sources, on the GPUs here or on two CPU ranks.

    Every key of the configuration is a flag; a later source wins: defaults, CONFIG.toml, flags. It starts its own
    ranks, or joins those that are there: torchrun --nproc-per-node 8 -m -- meshwright train run.toml, or srun.

    A run goes on from its newest checkpoint. Exit code 1: it failed, or (--dry-run) it does not fit; 130 and 143: it
    was asked to stop by Ctrl-C or SIGTERM, and has saved.
    """
    from meshwright.train.config.read import read_config
    from meshwright.train.config.resolve import resolve

    job = resolve(read_config(config, flags))
    if show_config:
        _show_config(job, as_json)
        return 0
    if dry_run:
        return _foresee(job, as_json)
    return _join(job, as_json) if job.here.started else _start(job, as_json)


def _show_config(job: Job, as_json: bool) -> None:
    from meshwright.train.config.toml_file import to_table, to_toml

    if as_json:
        print_json(to_table(job.config))
    else:
        print(to_toml(job.config), end="")


def _foresee(job: Job, as_json: bool) -> int:
    """Print what would run and what the formulas say of it."""
    from meshwright.cost.result import DOES_NOT_FIT
    from meshwright.train.metrics.heading import heading_lines
    from meshwright.train.metrics.prediction import predict, prediction_lines

    prediction = predict(job)
    if as_json:
        print_json(_document(job, prediction))
    else:
        print("\n".join([*heading_lines(job), *prediction_lines(job, prediction)]))
    return 1 if prediction.estimate and prediction.estimate.memory.verdict == DOES_NOT_FIT else 0


def _document(job: Job, prediction: Prediction) -> dict[str, Any]:
    from meshwright.cli import documents
    from meshwright.train.config.toml_file import to_table
    from meshwright.train.metrics.prediction import prediction_document

    return {
        "model": documents.model_document(job.model),
        "workload": documents.workload_document(job.workload),
        "layout": str(job.layout),
        "degrees": documents.degrees(job.layout),
        "ranks": job.ranks,
        "device": job.device,
        "backend": job.backend,
        "run": str(job.folder),
        "config": to_table(job.config),
        "prediction": prediction_document(prediction),
        "notes": list(job.notes),
    }


def _start(job: Job, as_json: bool) -> int:
    """Start the ranks here and wait for them; each of them runs this verb again and joins."""
    from meshwright.train.config.folder import CONFIG, prepare_folder
    from meshwright.train.launch.local import launch_local, python_module

    _check_model(job)
    _prepare_data(job)
    prepare_folder(job)
    _forget_summary(job)
    for note in job.notes:  # the ranks read a configuration that has no open choices any more
        print_error(note, label="")
    command = python_module("meshwright", ["train", str(job.folder / CONFIG)])
    code = launch_local(command, job.ranks, job.folder, threads=job.config.launch.threads or None)
    if as_json:
        _print_summary(job)
    return code


def _join(job: Job, as_json: bool) -> int:
    """Be one of the ranks that torchrun, Slurm or `_start` has started."""
    from meshwright.train.config.folder import prepare_folder
    from meshwright.train.launch.error_files import record_errors
    from meshwright.train.loop import train

    place = job.here.place
    with record_errors(place.rank, job.folder):
        first_of_others = place.rank == 0 and place.launcher != "local"
        if first_of_others:
            prepare_folder(job)
            _forget_summary(job)
        outcome = train(job)
        if first_of_others and as_json:
            _print_summary(job)
    # Of ranks that it started itself, the launcher knows that they were asked to stop.
    return outcome.exit_code if place.launcher != "local" else 0


def _check_model(job: Job) -> None:
    """Raises ModelError for an architecture that the decoder does not compute exactly; small presets are all fine."""
    from meshwright.train.config.models import small_names

    if job.config.model not in small_names():
        from meshwright.train.models.build import load_architecture

        load_architecture(job.config.model)


def _prepare_data(job: Job) -> None:
    """Tokenize what no run has tokenized yet, once for all ranks, with a line that shows how far it is."""
    from meshwright.train.data.dataset import open_dataset

    with progress_line("bytes tokenized") as show:
        open_dataset(
            job.config.data, vocab=job.model.vocab, progress=lambda done: show(done.bytes_done, done.bytes_total)
        )


def _forget_summary(job: Job) -> None:
    from meshwright.train.metrics.summary import FILE

    (job.folder / FILE).unlink(missing_ok=True)


def _print_summary(job: Job) -> None:
    from meshwright.train.metrics.summary import read_summary

    summary = read_summary(job.folder)
    if summary is not None:
        print_json(summary)
