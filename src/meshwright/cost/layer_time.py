"""Layer time: an average layer's passes with its collectives, what is run again, and the host that launches it all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from meshwright.cost.compute import BlockSeconds, smooth_max
from meshwright.cost.data_parallel import Flow
from meshwright.cost.layer import Exchange
from meshwright.cost.pipeline import Passes
from meshwright.spec.columns import LayoutColumns, Number
from meshwright.spec.implementation import Implementation
from meshwright.spec.model import Model
from meshwright.spec.workload import Tuning, Workload

LAYER_AXES = ("tensor", "context", "expert")
"""Axes whose collectives stand inside a layer, between its operations."""


@dataclass(frozen=True, slots=True)
class LayerTime:
    """An average layer's seconds for one micro-batch, and the parts they consist of."""

    passes: Passes
    forward: Mapping[str, Number]
    """What the forward pass consists of."""
    backward: Mapping[str, Number]
    """What the two backward passes consist of."""
    compute: Passes
    """Of `passes`, what the device computes, recomputation included: traffic could run beside it."""


@dataclass(frozen=True, slots=True)
class _Exposed:
    """Seconds of in-layer collectives that nothing hides, by axis."""

    forward: Mapping[str, Number]
    backward: Mapping[str, Number]
    """With those that full recomputation runs again."""


def layer_time(
    model: Model,
    workload: Workload,
    layout: LayoutColumns,
    implementation: Implementation,
    compute: BlockSeconds,
    exchanges: list[Exchange],
    gathers: list[Flow],
) -> LayerTime:
    """Seconds of an average layer: the larger of device and host time, and the parameter traffic that neither hides."""
    full = np.where(np.asarray(layout.recompute) == 2, 1.0, 0.0)
    some = np.where(np.asarray(layout.recompute) == 1, 1.0, 0.0)
    to_input = compute.passes.input_gradient
    to_weight = compute.passes.weight_gradient * weight_share(workload.tuning)
    replay = full * compute.passes.forward + some * compute.replay
    exposed = _exposed_exchanges(exchanges, full)

    forward = compute.passes.forward + sum(exposed.forward.values())
    backward = to_input + to_weight + replay + sum(exposed.backward.values())
    launch = _launch_seconds(model, layout, implementation)
    launched_forward = smooth_max(forward, launch)
    launched_backward = smooth_max(backward, launch * (implementation.backward_launches + full))

    share = implementation.overlap * float(workload.overlap)
    ahead, back = gather_seconds(gathers)
    gathered_forward = exposed_seconds(ahead, launched_forward * share, implementation)
    gathered_backward = exposed_seconds(back, launched_backward * share, implementation)
    total = launched_backward + gathered_backward
    by_weight = to_weight / np.maximum(to_input + to_weight, 1e-30)
    first = {
        "forward": compute.passes.forward,
        "launch": launched_forward - forward,
        "data communication": gathered_forward,
    }
    second = {
        "backward": to_input + to_weight,
        "recompute": replay,
        "launch": launched_backward - backward,
        "data communication": gathered_backward,
    }
    for axis in LAYER_AXES:
        first[f"{axis} communication"] = exposed.forward.get(axis, 0.0)
        second[f"{axis} communication"] = exposed.backward.get(axis, 0.0)
    passes = Passes(launched_forward + gathered_forward, total * (1 - by_weight), total * by_weight)
    computed = Passes(compute.passes.forward, to_input + replay, to_weight)
    return LayerTime(passes, first, second, computed)


def weight_share(tuning: Tuning) -> float:
    """Share of the weight gradients that are computed: LoRA (arXiv:2106.09685) hardly needs any, but every input's."""
    return 0.0 if tuning.kind == "lora" else 1.0


def exposed_seconds(traffic: Number, window: Number, implementation: Implementation) -> Number:
    """What traffic adds to compute that it runs beside: the part that does not fit, and the slow-down it causes."""
    hidden = np.minimum(traffic, window)
    return traffic - hidden + implementation.overlap_slowdown * hidden


def _launch_seconds(model: Model, layout: LayoutColumns, implementation: Implementation) -> Number:
    """Host seconds for an average layer's forward."""
    ranks = 1.0 + implementation.tensor_parallel_launches * ((layout.tensor - 1) / 7) ** 2
    mixtures = 1.0 + model.moe_layers / model.layers * (implementation.mixture_launches - 1.0)
    return implementation.layer_seconds * ranks * mixtures


def _exposed_exchanges(exchanges: list[Exchange], full: Number) -> _Exposed:
    forward: dict[str, Number] = {}
    backward: dict[str, Number] = {}
    for x in exchanges:
        each = np.maximum(x.seconds - x.hidden_behind, 0.0)
        forward[x.axis] = forward.get(x.axis, 0.0) + x.forward * each
        backward[x.axis] = backward.get(x.axis, 0.0) + (x.backward + x.replayed * full) * each
    return _Exposed(forward, backward)


def gather_seconds(gathers: list[Flow]) -> tuple[Number, Number]:
    """Seconds of parameter and gradient traffic in forward and in backward."""
    seconds: dict[str, Number] = {"forward": 0.0, "backward": 0.0}
    for flow in gathers:
        seconds[flow.when] = seconds[flow.when] + flow.count * flow.seconds
    return seconds["forward"], seconds["backward"]
