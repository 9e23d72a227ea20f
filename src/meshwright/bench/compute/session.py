"""Session: one rank's part of `comms --compute`, in a process group that is there."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from meshwright.bench.compute.clock import seconds_of
from meshwright.bench.compute.fit import Constants, device_of, errors_by_kind, fit, told_seconds
from meshwright.bench.compute.meeting import meeting_seconds
from meshwright.bench.compute.prices import Prices, make_prices, product
from meshwright.bench.compute.result import Measured, Sample
from meshwright.bench.compute.shapes import FORWARD, LAYER, PRODUCT, Shape, shapes_for
from meshwright.bench.compute.work import DTYPES, work_of
from meshwright.spec.cluster import Device
from meshwright.spec.cores import cores
from meshwright.spec.units import duration, flops, gb_per_s, percent
from meshwright.train.config.devices import known_device
from meshwright.train.launch.environment import Place
from meshwright.train.launch.signals import meeting_device
from meshwright.train.metrics.usage import host_peak

Progress = Callable[[int, int], None]
WINDOW_SECONDS = 0.15
"""For each shape."""
TYPICAL_SECONDS = 0.01
"""Of the layer behind which ranks meet."""
FITTED = {"cpu": "fp32", "cuda": "bf16"}
"""The precision whose times are fitted; of the others only the peak is measured."""
SOFTWARE = {"cpu": "host", "cuda": "eager"}
"""The class of software that a device's constants are fitted for, unless said."""
OTHERS = {"cpu": ("bf16",), "cuda": ("fp32", "fp16")}
STATM = Path("/proc/self/statm")


def measure_compute(
    place: Place,
    device: torch.device,
    name: str,
    implementation: str,
    progress: Progress,
    window: float = WINDOW_SECONDS,
) -> Measured | None:
    """Measure the device called `name` by shape while all ranks do, and fit it; None on ranks but the first.

    The constants are fitted for one class of software (`spec.implementation`; "": the device's own), which the estimate
    must name, too.
    """
    reserved = _resident_bytes() if device.type == "cpu" else 0.0
    precision = FITTED[device.type]
    shapes = shapes_for(device.type)
    told = make_prices(shapes, precision, implementation or SOFTWARE[device.type])
    largest = max((shape for shape in shapes if shape.kind == PRODUCT and shape.part == FORWARD), key=_work)
    wanted = [(shape, precision) for shape in shapes] + [(largest, other) for other in OTHERS[device.type]]
    seconds = []
    for done, (shape, dtype) in enumerate(wanted):
        progress(done, len(wanted))
        seconds.append(_median_of_ranks(seconds_of(work_of(shape, device, DTYPES[dtype]), window, device)))
    layers = [(taken, shape) for taken, shape in zip(seconds, shapes, strict=False) if shape.kind == LAYER]
    _, typical = min(layers, key=lambda layer: _far(layer[0]))
    met = _median_of_ranks(meeting_seconds(work_of(typical, device, DTYPES[precision]), device))
    if dist.get_rank() != 0:
        return None  # the first rank fits: on shared cores a fit on each would take as many times as long
    own = seconds[: len(shapes)]
    constants = fit(own, told)
    peaks = {
        other: float(product(largest, precision).flops) / taken
        for other, taken in zip(OTHERS[device.type], seconds[len(shapes) :], strict=True)
    }
    measured = _device(place, device, name, constants, told, shapes, own, peaks, reserved)
    return _result(measured, _host_bytes(), shapes, own, constants, told, met)


def _device(
    place: Place,
    device: torch.device,
    name: str,
    constants: Constants,
    told: Prices,
    shapes: list[Shape],
    seconds: list[float],
    peaks: dict[str, float],
    reserved: float,
) -> Device:
    """The fitted device; a GPU of the catalogue keeps its nominal peaks, so that its MFU means what it always does."""
    known = known_device(name) if device.type == "cuda" else None
    timed = zip(shapes, seconds, strict=True)
    best = max(float(product(shape, told.precision).flops) / taken for shape, taken in timed if shape.kind == PRODUCT)
    nominal = known.peak_flops.get(told.precision, 0.0) if known else 0.0
    made = device_of(constants, told, max(best, nominal))
    share = made.efficiency.matmul
    others = {other: reached / share for other, reached in peaks.items()}
    if known is not None:
        others = {other: known.peak_flops.get(other, reached) for other, reached in others.items()}
        others = {**known.peak_flops, **others}
    memory = float(torch.cuda.get_device_properties(device).total_memory) if device.type == "cuda" else 0.0
    efficiency = made.efficiency
    if device.type == "cpu":
        efficiency = replace(efficiency, reserved_bytes=reserved, lent=lent(place.local_world_size, cores()))
    return replace(
        made,
        name=known.name if known else name,
        memory_bytes=memory or _host_bytes() / place.local_world_size,
        peak_flops={**others, **made.peak_flops},
        efficiency=efficiency,
        source=f"measured by all of {place.local_world_size} ranks of a node at once, "
        f"for the class of software {told.implementation.name}",
    )


def lent(ranks: int, cores: int) -> float:
    """Share of a waiting rank's time that the other ranks of its node make use of, of one thread each.

    A pipeline of R ranks waits R(R-1) forwards and backwards of a rank together, half of it while it fills and drains
    and half while the first backward comes back: 1, 2, … ranks work. C cores are idle for C(C-1) of them alone.
    """
    used = min(cores, ranks)
    return 1 - used * (used - 1) / (ranks * (ranks - 1)) if ranks > 1 else 0.0


def _result(
    device: Device, host: float, shapes: list[Shape], seconds: list[float], constants: Constants, told: Prices,
    met: float,
) -> Measured:  # fmt: skip
    fitted = told_seconds(constants, told).tolist()
    errors = errors_by_kind(shapes, seconds, fitted)
    each = ", ".join(f"{kind} {percent(middle)} (worst {percent(worst)})" for kind, middle, worst in errors)
    lines = (
        f"{device.name}, {told.precision}, for --implementation {told.implementation.name}: "
        f"products {flops(constants.product_flops)}, {duration(constants.overhead_s)} lost by each and "
        f"{constants.tile:.3g} elements by each dimension; attention {flops(constants.attention_flops)}; "
        f"memory {gb_per_s(constants.memory_bytes_per_s)}",
        f"a collective behind work waits {duration(met)} for the last rank",
        f"error of the fit, median: {each}",
    )
    samples = tuple(Sample(shape.kind, shape.name, taken) for shape, taken in zip(shapes, seconds, strict=True))
    return Measured(device, host, samples, tuple(fitted), errors, lines, told.implementation.name, met)


def _far(seconds: float) -> float:
    """How far from TYPICAL_SECONDS, as a ratio."""
    return abs(float(np.log(seconds / TYPICAL_SECONDS)))


def _work(shape: Shape) -> int:
    return int(np.prod(shape.sizes))


def _median_of_ranks(seconds: float) -> float:
    world = dist.get_world_size() if dist.is_initialized() else 1
    if world == 1:
        return seconds
    place = meeting_device()
    everyone = [torch.zeros(1, dtype=torch.float64, device=place) for _ in range(world)]
    dist.all_gather(everyone, torch.tensor([seconds], dtype=torch.float64, device=place))
    return float(torch.cat(everyone).median())


def _host_bytes() -> float:
    """Memory of this machine."""
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _resident_bytes() -> float:
    """What a rank holds before any tensor: the interpreter, PyTorch and the collectives' buffers."""
    if STATM.exists():
        return float(STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return host_peak()
