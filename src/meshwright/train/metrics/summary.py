"""summary.json: how a run ended, for `--json` and for whoever compares runs. The first rank writes it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from meshwright.spec.errors import RequestError
from meshwright.train.config.files import write_atomically
from meshwright.train.config.job import Job
from meshwright.train.config.toml_file import to_table
from meshwright.train.metrics.jsonl import finite
from meshwright.train.metrics.prediction import Measurement, Prediction, prediction_document
from meshwright.train.metrics.step import StepReport

FILE = "summary.json"


def summary_document(
    job: Job,
    prediction: Prediction,
    measured: Measurement | None,
    last: StepReport | None,
    *,
    layout_run: str,
    first_step: int = 0,
    stopped_by: str | None = None,
) -> dict[str, Any]:
    """What `meshwright train --json` prints: bytes, seconds, shares of 1.

    `layout_run` is the layout derived from facts; `first_step` is the step that the run resumed from; `stopped_by`
    names the signal that ended it early. `measured` and `last` are None where no step was left to do.
    """
    return {
        "run": str(job.folder),
        "model": job.model.name,
        "layout": str(job.layout),
        "layout_run": layout_run,
        "ranks": job.ranks,
        "device": job.here.gpu if job.device == "cuda" else "cpu",
        "backend": job.backend,
        "steps": job.config.train.steps,
        "first_step": first_step,
        "stopped_by": stopped_by,
        "last": finite(last.numbers()) if last else None,
        "measurement": finite(asdict(measured)) if measured else None,
        "prediction": prediction_document(prediction),
        "config": to_table(job.config),
        "notes": list(job.notes),
    }


def write_summary(folder: Path, document: dict[str, Any]) -> None:
    """Write the run's summary, whole or not at all. Raises RequestError where that is not possible."""
    try:
        write_atomically(folder / FILE, json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    except OSError as error:
        raise RequestError(f"Cannot write {folder / FILE}: {error.strerror}.") from error


def read_summary(folder: Path) -> dict[str, Any] | None:
    """The run's summary; None: it did not get to its end."""
    path = folder / FILE
    if not path.exists():
        return None
    found = json.loads(path.read_text(encoding="utf-8"))
    return found if isinstance(found, dict) else None
