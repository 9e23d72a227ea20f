"""The Estimate's word on a run: memory and step time at the start, beside the measurement at the end.

Bytes of parameters, gradients and optimizer states depend on no device and are always known; the rest needs a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from meshwright.spec.layout import Layout
from meshwright.spec.model import Model
from meshwright.spec.units import binary, duration, percent
from meshwright.spec.workload import Workload
from meshwright.train.config.job import Job

if TYPE_CHECKING:
    from meshwright.cost.result import Estimate
    from meshwright.train.config.tree import TrainConfig


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is known of a run before it starts."""

    states: Mapping[str, float]
    """parameters, gradients, optimizer: bytes of the fullest rank."""
    estimate: Estimate | None
    """On the cluster; None: there is none to price it on."""
    missing: str
    """Why there is no Estimate; "" where there is one."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a run needed: the Estimate's twin, with its field names."""

    step_seconds: float
    """Median of the last steps."""
    tokens_per_second_per_device: float
    memory_bytes: float
    """Peak of the fullest rank."""
    memory_kind: str
    """`usage.CUDA` or `usage.HOST`."""
    mfu: float | None = None


def predict(job: Job) -> Prediction:
    """What the formulas say of `job`."""
    states = state_bytes_of_rank(job.model, job.workload, job.layout)
    if job.cluster is None:
        return Prediction(states, None, _why(job))
    from meshwright.cost.program.estimate import with_own_memory
    from meshwright.plan.shortlist import simulated_estimate
    from meshwright.spec.errors import LayoutError, ModelError

    try:
        priced = simulated_estimate(job.model, job.cluster, job.workload, job.layout)
        if _counted(job.config):
            priced = with_own_memory(priced, job.config.optimizer.name, gpu=job.for_gpus)
    except (LayoutError, ModelError) as error:  # the runtime runs what no runtime of the cost model does
        return Prediction(states, None, f"no prediction: {error}")
    return Prediction(states, priced, "")


def _counted(config: TrainConfig) -> bool:
    """Whether the count of the program's memory (`cost.program`) knows these options."""
    parallel, optimizer = config.parallel, config.optimizer
    other = config.train.compile or config.data.isolate_documents or parallel.find_unused or parallel.schedule_csv
    return not (other or parallel.prefetch != 1 or (optimizer.name == "sgd" and not optimizer.momentum))


def _why(job: Job) -> str:
    if job.device == "cuda":
        return f"no prediction: {job.here.gpu} is not in the catalogue; --cluster names a cluster or its TOML file"
    return "no prediction: no cluster file for this CPU; --cluster FILE names one (docs/clusters.md)"


def state_bytes_of_rank(model: Model, workload: Workload, layout: Layout) -> dict[str, float]:
    """Bytes of parameters, gradients and optimizer states on the fullest rank (ZeRO, arXiv:1910.02054 figure 1)."""
    from meshwright.cost.rank_layers import learned_layers, rank_layers
    from meshwright.cost.shares import FIRST, LAST, ORDINARY, rank_share
    from meshwright.cost.stage_layers import layers_of_stages
    from meshwright.cost.states import state_shares
    from meshwright.spec.columns import columns_of
    from meshwright.spec.optimizer import state_bytes

    if layout.pipeline > 1 and not layout.stage_layers:  # as the runtime cuts it, not as the cheapest cut would be
        layout = replace(layout, stage_layers=tuple(layers_of_stages(model.layers, layout)))
    columns, states, tuning = columns_of(layout), state_bytes(workload, model), workload.tuning
    layers = rank_layers(model, columns, True)
    learned = learned_layers(model, columns, True, tuning, layers)
    positions = (FIRST, ORDINARY, LAST) if layout.pipeline > 2 else (FIRST, LAST)
    found = []
    for position in positions:
        share = rank_share(model, columns, tuning, layers, learned, position)
        found.append([float(part) for part in state_shares(share.held, share.learned, states, columns)])
    return dict(zip(("parameters", "gradients", "optimizer"), max(found, key=sum), strict=True))


def prediction_lines(job: Job, prediction: Prediction) -> list[str]:
    """What a person reads of it at the start."""
    parts = ", ".join(f"{name} {binary(size)}" for name, size in prediction.states.items())
    lines = [f"states of the fullest rank: {binary(sum(prediction.states.values()))} ({parts})"]
    priced = prediction.estimate
    if priced is None:
        return [*lines, prediction.missing]
    memory = priced.memory
    return [
        *lines,
        f"predicted on {priced.cluster.name}: memory {binary(memory.peak_bytes)} of tensors, "
        f"{binary(memory.reserved_bytes)} of {binary(memory.capacity_bytes)} in all ({memory.verdict}), "
        f"peak at {memory.peak_instant}",
        f"predicted step: {duration(priced.step_seconds)}, "
        f"{priced.tokens_per_second_per_device * job.ranks:,.0f} tokens/s, MFU {percent(priced.mfu)}",
    ]


def comparison_lines(prediction: Prediction, measured: Measurement) -> list[str]:
    """Prediction beside measurement, at the end."""
    priced = prediction.estimate
    speed = f"step {duration(measured.step_seconds)}"
    memory = f"memory {binary(measured.memory_bytes)} ({measured.memory_kind})"
    if priced is None:
        states = binary(sum(prediction.states.values()))
        return [f"measured: {speed}", f"measured: {memory}; {states} of it predicted for states", prediction.missing]
    beside = _off(priced.step_seconds, measured.step_seconds)
    lines = [f"measured: {speed}; predicted {duration(priced.step_seconds)} ({beside})"]
    expected = priced.memory.peak_bytes
    beside = _off(expected, measured.memory_bytes)
    return [*lines, f"measured: {memory}; predicted {binary(expected)} of tensors ({beside})"]


def _off(predicted: float, measured: float) -> str:
    """How far a prediction is off, as a share of the measurement."""
    share = predicted / measured - 1
    return f"{percent(abs(share))} too {'high' if share > 0 else 'low'}"


def prediction_document(prediction: Prediction) -> dict[str, Any]:
    """The prediction for JSON: bytes and seconds."""
    priced = prediction.estimate
    return {
        "state_bytes": dict(prediction.states),
        "cluster": priced.cluster.name if priced else None,
        "step_seconds": priced.step_seconds if priced else None,
        "tokens_per_second_per_device": priced.tokens_per_second_per_device if priced else None,
        "mfu": priced.mfu if priced else None,
        "memory_bytes": priced.memory.peak_bytes if priced else None,
        "reserved_bytes": priced.memory.reserved_bytes if priced else None,
        "verdict": priced.memory.verdict if priced else None,
        "missing": prediction.missing or None,
    }
