"""MetricsWriter: sends each step's report to every sink. It lives on the first rank; the others write nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from meshwright.train.config.tree import MetricsSection
from meshwright.train.metrics.step import StepReport


class Sink(Protocol):
    """Somewhere that reports go to."""

    def write(self, report: StepReport) -> None:
        """Take one step's report."""

    def close(self) -> None:
        """Write what is buffered."""


class MetricsWriter:
    """Writes to all sinks; a context manager that closes them."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = tuple(sinks)

    def write(self, report: StepReport) -> None:
        """Send one step's report to every sink."""
        for sink in self._sinks:
            sink.write(report)

    def close(self) -> None:
        """Close every sink, the others too where one fails."""
        failures = []
        for sink in self._sinks:
            try:
                sink.close()
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def __enter__(self) -> MetricsWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_metrics(
    folder: Path, section: MetricsSection, config: Mapping[str, Any], *, resumed_step: int = 0
) -> MetricsWriter:
    """The sinks that [metrics] asks for, in the run's `folder`, for the steps after `resumed_step`.

    `config` is the resolved configuration as a table (`toml_file.to_table`), which services show beside the run.
    Raises RequestError: something asked for is not installed, or the folder cannot be written.
    """
    from meshwright.train.metrics.curves import TensorBoardSink
    from meshwright.train.metrics.jsonl import JsonlSink
    from meshwright.train.metrics.services import MlflowSink, WandbSink

    sinks: list[Sink] = [JsonlSink(folder / "metrics.jsonl", resumed_step)]
    if section.tensorboard:
        sinks.append(TensorBoardSink(folder / "tensorboard", resumed_step))
    if section.wandb:
        sinks.append(WandbSink(folder, section.project, config))
    if section.mlflow:
        sinks.append(MlflowSink(folder, section.project, config))
    return MetricsWriter(sinks)
