"""The fit finds the constants that made-up times were made of; columns say what the cost model says one by one."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.bench.comms.cluster_file import measured_cluster
from meshwright.bench.comms.result import Machine
from meshwright.bench.compute.fit import Constants, device_of, errors_by_kind, fit, rates_of, simplex, told_seconds
from meshwright.bench.compute.prices import attention, make_prices, product
from meshwright.bench.compute.shapes import BOTH, FORWARD, KINDS, MODELS, Shape, shapes_for
from meshwright.cost.compute import forward_seconds
from meshwright.cost.layer import layer_seconds
from meshwright.cost.layer_time import layer_time
from meshwright.cost.rank_time import edge_passes
from meshwright.spec.cluster_toml import read_toml, to_toml
from meshwright.spec.columns import columns_of
from meshwright.spec.implementation import load_implementation
from meshwright.spec.layout import Layout
from meshwright.spec.model_config import read_config
from meshwright.spec.workload import make_workload

CPU = shapes_for("cpu")
TRUE = Constants(4e10, 30e-6, 10.0, 1.2e10, 6e9)


@pytest.mark.parametrize("software", ["eager", "fused"])
def test_the_constants_that_times_were_made_of_are_found(software: str) -> None:
    prices = make_prices(CPU, "fp32", software)
    found = fit(told_seconds(TRUE, prices).tolist(), prices)
    for name in ("product_flops", "overhead_s", "tile", "attention_flops", "memory_bytes_per_s"):
        assert getattr(found, name) == pytest.approx(getattr(TRUE, name), rel=0.02), name


def test_noise_moves_what_is_told_of_layers_little() -> None:
    prices = make_prices(CPU, "fp32", "eager")
    true = told_seconds(TRUE, prices)
    noisy = true * np.exp(np.random.default_rng(1).normal(0, 0.15, len(true)))
    told = told_seconds(fit(noisy.tolist(), prices), prices)
    layers = [at for at, shape in enumerate(CPU) if shape.kind == "layer"]
    assert np.median(np.abs(told / true - 1)[layers]) < 0.08


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("software", ["eager", "fused", "compiled"])
def test_columns_tell_what_the_cost_model_tells_of_each_shape_alone(device: str, software: str) -> None:
    shapes = shapes_for(device)
    prices = make_prices(shapes, "fp32", software)
    r = rates_of(device_of(TRUE, prices), prices)
    implementation = load_implementation(software)
    for shape, told in zip(shapes, prices.seconds(r), strict=True):
        if shape.kind not in ("layer", "head"):
            continue
        batch, seq = shape.sizes
        model = read_config(MODELS[shape.model], shape.model)
        work = make_workload(seq, batch, precision="fp32", implementation=software)
        layout = columns_of(Layout(micro_batch=batch))
        if shape.kind == "head":
            edges = edge_passes(model, work, layout, r)
            alone = float(edges.embedding.total + edges.head.total)
        else:
            compute = layer_seconds(model, work, layout, r)
            passes = layer_time(model, work, layout, implementation, compute, [], []).passes
            alone = float(passes.forward if shape.part == FORWARD else passes.total)
        assert told == pytest.approx(alone, rel=1e-12), shape.name


def test_a_product_and_attention_have_the_flops_of_the_textbook() -> None:
    assert product(Shape("product", (32, 64, 128), FORWARD), "fp32").flops == 2 * 32 * 64 * 128
    # Causal: half of 2·2·s²·d for each head; backward is two and a half times that.
    one = attention(Shape("attention", (2, 4, 256, 16)), "fp32")
    assert one.flops == 2 * 4 * (2 * 2 * 256 * 256 * 16) / 2
    assert one.input_gradient == 2.5


def test_every_kind_is_measured_from_small_to_large() -> None:
    for device in ("cpu", "cuda"):
        shapes = shapes_for(device)
        assert {shape.kind for shape in shapes} == set(KINDS)
        assert len({shape.name for shape in shapes}) == len(shapes)


def test_the_device_is_one_that_a_cluster_file_may_hold() -> None:
    """Shares are at most 1, whatever is faster: attention, products, or a nominal peak."""
    prices = make_prices(CPU, "fp32", "eager")
    machine = Machine(2, 1, "x", "cpu", "gloo", "")
    for constants in (TRUE, Constants(1e10, 1e-6, 1e-2, 9e10, 1e9)):
        for peak in (0.0, 1e12):
            device = device_of(constants, prices, peak)
            again = read_toml(to_toml(measured_cluster(machine, (), device)))
            assert again.device.efficiency.matmul <= 1
            r = rates_of(again.device, prices)
            assert r.matmul == pytest.approx(constants.product_flops)
            assert r.attention == pytest.approx(constants.attention_flops)
            assert float(forward_seconds(product(CPU[0], "fp32"), r)) > 0


def test_the_simplex_finds_the_bottom_of_rosenbrocks_valley() -> None:
    found = simplex(lambda x: float((1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2), np.array([-1.2, 1.0]), 0.5, 300)
    assert found == pytest.approx([1.0, 1.0], abs=0.02)


def test_errors_are_told_by_kind() -> None:
    shapes = [Shape("product", (1, 1, 1), BOTH), Shape("product", (2, 2, 2), BOTH), Shape("layer", (1, 1))]
    assert errors_by_kind(shapes, [1.0, 1.0, 2.0], [1.5, 1.0, 1.0]) == (("product", 0.25, 0.5), ("layer", 0.5, 0.5))
