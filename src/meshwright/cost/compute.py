"""Seconds of computation: operations to time by a smooth roofline with ramp-up and launch costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.cost.operations import ATTENTION, ELEMENTWISE, MATMUL, SCORES, Operation
from meshwright.cost.pipeline import Passes
from meshwright.spec.cluster import Device
from meshwright.spec.columns import Number
from meshwright.spec.implementation import Implementation
from meshwright.spec.workload import Workload

ALIGNMENT = 8
"""Elements of 16 bit that tensor cores want each row of a product to be a multiple of (NVIDIA, Matrix
Multiplication Background: 16 bytes)."""


@dataclass(frozen=True, slots=True)
class Rates:
    """What one device reaches, in FLOP/s and bytes/s, for one workload."""

    matmul: float
    matmul_overhead: float
    """Seconds that one product loses to launch, ramp-up and tails."""
    misaligned: float
    """Slow-down of a product whose rows do not start on 16 bytes."""
    tile: float
    """Edge in elements that every dimension of a product is padded with on average."""
    attention: float
    memory: float
    """Element-wise kernels, as many as this software launches for one."""
    scores: float
    """Scale, mask, softmax and dropout of scores that go through memory."""
    raw_memory: float
    """One kernel that reads and writes."""


def rates(device: Device, workload: Workload, implementation: Implementation) -> Rates:
    """Peak times efficiency; fp8 speeds up matrix products only, attention stays in 16 bit."""
    reached = device.efficiency
    peak = device.peak_flops
    dense = peak[workload.precision]
    wide = peak["bf16"] if workload.precision == "fp8" else dense
    matmul = dense * (reached.matmul_fp8 if workload.precision == "fp8" else reached.matmul)
    return Rates(
        matmul=matmul,
        matmul_overhead=reached.matmul_overhead_s,
        misaligned=reached.misaligned,
        tile=reached.matmul_tile,
        attention=wide * reached.attention * implementation.attention,
        memory=device.memory_bytes_per_s * reached.memory / implementation.elementwise,
        scores=device.memory_bytes_per_s * reached.memory / implementation.score_traffic,
        raw_memory=device.memory_bytes_per_s * reached.memory,
    )


def smooth_max(a: Number, b: Number) -> Number:
    """(a^8 + b^8)^(1/8): the larger of two overlapping times, a little more where they are close."""
    high = np.maximum(a, b)
    ratio = np.minimum(a, b) / np.maximum(high, 1e-30)
    # squares and roots: three times as fast as powers on columns
    ratio = np.square(np.square(np.square(ratio)))
    return high * np.sqrt(np.sqrt(np.sqrt(1 + ratio)))


def _padding(operation: Operation, r: Rates) -> Number:
    """FLOPs done over FLOPs asked for: a product's dimensions are rounded up to tiles."""
    if operation.shape is None:
        return 1.0
    m, n, k = operation.shape
    padded = (1 + r.tile / m) * (1 + r.tile / n) * (1 + r.tile / k)
    aligned = (np.mod(n, ALIGNMENT) == 0) & (np.mod(k, ALIGNMENT) == 0)
    return padded * np.where(aligned, 1.0, r.misaligned)


def _seconds(operation: Operation, flops: Number, moved: Number, products: float, r: Rates) -> Number:
    """Roofline time of `flops` and `moved` bytes, done in `products` kernels."""
    if operation.kind == ELEMENTWISE:
        return moved / r.memory
    if operation.kind == SCORES:
        return moved / r.scores
    rate = r.attention if operation.kind == ATTENTION else r.matmul
    busy = flops * _padding(operation, r) / rate
    return smooth_max(busy, moved / r.memory) + products * r.matmul_overhead


def forward_seconds(operation: Operation, r: Rates) -> Number:
    """Seconds of the forward pass."""
    return _seconds(operation, operation.flops, operation.bytes, 1.0, r)


def backward_seconds(operation: Operation, r: Rates) -> tuple[Number, Number]:
    """Seconds of the input gradient and of the weight gradient."""
    op = operation
    if op.weight_gradient == 0.0:
        products = 2.0 if op.kind == MATMUL else 1.0
        return _seconds(op, op.flops * op.input_gradient, op.bytes * op.backward_bytes, products, r), 0.0
    half = op.bytes * op.backward_bytes / 2
    return (
        _seconds(op, op.flops * op.input_gradient, half, 1.0, r),
        _seconds(op, op.flops * op.weight_gradient, half, 1.0, r),
    )


@dataclass(frozen=True, slots=True)
class BlockSeconds:
    """One block's compute seconds for one micro-batch, without launches and collectives."""

    passes: Passes
    replay: Number
    """Seconds to run again what selective recomputation dropped."""


def block_seconds(operations: list[Operation], r: Rates) -> BlockSeconds:
    """Sums over a block's operations."""
    forward: Number = 0.0
    inputs: Number = 0.0
    weights: Number = 0.0
    replay: Number = 0.0
    for operation in operations:
        ahead = forward_seconds(operation, r)
        to_input, to_weight = backward_seconds(operation, r)
        forward = forward + ahead
        inputs = inputs + to_input
        weights = weights + to_weight
        if operation.replayed:
            replay = replay + ahead
    return BlockSeconds(Passes(forward, inputs, weights), replay)
