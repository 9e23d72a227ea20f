"""Weights & Biases and MLflow: only when asked for. Both go on with the run of the folder when it resumes."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from meshwright.spec.errors import RequestError
from meshwright.train.config.files import write_atomically
from meshwright.train.config.sense import missing
from meshwright.train.metrics.jsonl import finite
from meshwright.train.metrics.step import StepReport


def need(name: str) -> Any:
    """The installed module. Raises RequestError that says how to install it or go without."""
    try:
        return import_module(name)
    except ImportError as error:
        raise missing(name) from error


class WandbSink:
    """A run at Weights & Biases."""

    def __init__(self, folder: Path, project: str, config: Mapping[str, Any]) -> None:
        """Start or continue the run of `folder`. Raises RequestError: not installed, or no login and no WANDB_MODE."""
        wandb = need("wandb")
        known = _known(folder / "wandb-run")
        try:
            self._run = wandb.init(
                project=project,
                name=folder.name,
                id=known or None,
                resume="allow",
                dir=str(folder),
                config=dict(config),
            )
        except wandb.errors.Error as error:
            raise RequestError(
                f"Weights & Biases: {error}", ("wandb login", "WANDB_MODE=offline", "--metrics.no-wandb")
            ) from error
        if not known:
            write_atomically(folder / "wandb-run", f"{self._run.id}\n")

    def write(self, report: StepReport) -> None:
        """One row."""
        self._run.log(_sendable(report), step=report.step)

    def close(self) -> None:
        """Send what is buffered."""
        self._run.finish()


class MlflowSink:
    """A run at the MLflow server that MLFLOW_TRACKING_URI names, else in ./mlruns."""

    def __init__(self, folder: Path, project: str, config: Mapping[str, Any]) -> None:
        """Start or continue the run of `folder`. Raises RequestError: not installed, or the server does not answer."""
        mlflow = need("mlflow")
        known = _known(folder / "mlflow-run")
        try:
            mlflow.set_experiment(project)
            run = mlflow.start_run(run_id=known) if known else mlflow.start_run(run_name=folder.name)
            if not known:
                mlflow.log_params(_flat(config))
        except mlflow.exceptions.MlflowException as error:
            raise RequestError(f"MLflow: {error}", ("MLFLOW_TRACKING_URI=…", "--metrics.no-mlflow")) from error
        self._mlflow = mlflow
        if not known:
            write_atomically(folder / "mlflow-run", f"{run.info.run_id}\n")

    def write(self, report: StepReport) -> None:
        """One point a metric."""
        self._mlflow.log_metrics(_sendable(report), step=report.step)

    def close(self) -> None:
        """End the run."""
        self._mlflow.end_run()


def _sendable(report: StepReport) -> dict[str, float]:
    """The numbers alone; one that is not finite is left out."""
    return {
        name: float(value)
        for name, value in finite(report.numbers()).items()
        if name != "step" and isinstance(value, (int, float))
    }


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in config.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found


def _known(path: Path) -> str:
    """The service's id of this folder's run; "" for a new one."""
    return path.read_text().strip() if path.exists() else ""
