"""Weights & Biases and MLflow get every number under its name, and go on with the run of a folder."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from meshwright.spec.errors import RequestError
from meshwright.train.config.tree import MetricsSection
from meshwright.train.metrics.writer import open_metrics

from .reports import report

CONFIG = {"model": "tiny-llama", "train": {"steps": 5}}


class Wandb(SimpleNamespace):
    """The few calls of wandb that are made (docs.wandb.ai, Python library reference: init, Run.log, Run.finish)."""

    def __init__(self) -> None:
        super().__init__(errors=SimpleNamespace(Error=type("Error", (Exception,), {})), runs=[], rows=[])

    def init(self, **options: Any) -> Any:
        self.runs.append(options)
        log = lambda row, step: self.rows.append((step, row))  # noqa: E731
        return SimpleNamespace(id=options["id"] or "abc123", log=log, finish=lambda: self.rows.append("finished"))


class Mlflow(SimpleNamespace):
    """The few calls of mlflow that are made (mlflow.org, Python API: mlflow)."""

    def __init__(self) -> None:
        super().__init__(exceptions=SimpleNamespace(MlflowException=type("MlflowException", (Exception,), {})))
        self.calls: list[tuple[str, Any]] = []

    def set_experiment(self, name: str) -> None:
        self.calls.append(("experiment", name))

    def start_run(self, **options: Any) -> Any:
        self.calls.append(("run", options))
        return SimpleNamespace(info=SimpleNamespace(run_id=options.get("run_id", "r1")))

    def log_params(self, params: dict[str, Any]) -> None:
        self.calls.append(("params", params))

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self.calls.append(("metrics", (step, metrics)))

    def end_run(self) -> None:
        self.calls.append(("end", None))


def section(**asked: bool) -> MetricsSection:
    return MetricsSection(tensorboard=False, project="llamas", **asked)


def test_wandb_gets_each_step_and_goes_on_with_the_run_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    for step in (1, 2):
        with open_metrics(tmp_path, section(wandb=True), CONFIG, resumed_step=step - 1) as writer:
            writer.write(report(step, loss=math.inf, skipped=True))
    assert [(run["project"], run["id"], run["config"]) for run in wandb.runs] == [
        ("llamas", None, CONFIG),
        ("llamas", "abc123", CONFIG),
    ]
    (step, row), end = wandb.rows[:2]
    assert (step, row["grad_norm"], row["skipped"], end) == (1, 0.125, 1.0, "finished")
    assert not {"loss", "step", "memory_kind"} & set(row)


def test_mlflow_gets_each_step_and_the_configuration_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = Mlflow()
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    for step in (1, 2):
        with open_metrics(tmp_path, section(mlflow=True), CONFIG, resumed_step=step - 1) as writer:
            writer.write(report(step))
    kinds = [kind for kind, _ in mlflow.calls]
    assert kinds == ["experiment", "run", "params", "metrics", "end", "experiment", "run", "metrics", "end"]
    assert mlflow.calls[2] == ("params", {"model": "tiny-llama", "train.steps": 5})
    assert mlflow.calls[3][1][1]["loss"] == 2.5
    assert mlflow.calls[6] == ("run", {"run_id": "r1"})


@pytest.mark.parametrize("name", ["wandb", "mlflow", "tensorboard"])
def test_a_service_that_is_asked_for_and_missing_is_one_message(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)  # Python's way to say: not importable
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    asked = MetricsSection(**{"tensorboard": False, name: True})
    with pytest.raises(RequestError, match=f"pip install {name}") as error:
        open_metrics(tmp_path, asked, CONFIG)
    assert error.value.legal == (f"--metrics.no-{name}",)


def test_a_service_that_refuses_is_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = Wandb()

    def refuse(**_: Any) -> None:
        raise wandb.errors.Error("no API key")

    monkeypatch.setattr(wandb, "init", refuse)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    with pytest.raises(RequestError, match=r"no API key.*WANDB_MODE=offline"):
        open_metrics(tmp_path, section(wandb=True), CONFIG)


def test_nothing_is_imported_that_nobody_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("wandb", "mlflow"):
        monkeypatch.setitem(sys.modules, name, None)
    with open_metrics(tmp_path, section(), CONFIG) as writer:
        writer.write(report(1))
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_one_sink_that_fails_to_close_does_not_keep_the_others_open(tmp_path: Path) -> None:
    from meshwright.train.metrics.writer import MetricsWriter

    class Sink:
        def __init__(self, fails: bool) -> None:
            self.fails, self.closed = fails, False

        def write(self, report: object) -> None: ...

        def close(self) -> None:
            self.closed = True
            if self.fails:
                raise OSError("full")

    sinks = [Sink(True), Sink(False)]
    with pytest.raises(OSError, match="full"):
        MetricsWriter(sinks).close()
    assert sinks[1].closed
