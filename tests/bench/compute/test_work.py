"""Every shape runs, and all ranks get through a session together."""

from __future__ import annotations

import pytest
import torch

from meshwright.bench.comms.cluster_file import measured_cluster
from meshwright.bench.comms.result import Machine
from meshwright.bench.compute import session
from meshwright.bench.compute.shapes import BOTH, FORWARD, INPUT, WEIGHT, Shape
from meshwright.bench.compute.work import work_of
from meshwright.spec.cluster_toml import read_toml, to_toml
from meshwright.train.launch.environment import read_place
from meshwright.train.launch.pool import RankPool

CPU = torch.device("cpu")
SMALL = [
    *(Shape("product", sizes, part) for sizes in ((8, 16, 24), (32, 64, 64)) for part in (FORWARD, INPUT, WEIGHT)),
    Shape("attention", (1, 2, 16, 8)),
    Shape("element-wise", (1024,)),
    Shape("layer", (1, 16), FORWARD, "h64"),
    Shape("layer", (1, 16), BOTH, "h64"),
    Shape("head", (1, 16), BOTH, "h64"),
    Shape("optimizer", (1024,)),
]


@pytest.mark.parametrize("shape", SMALL, ids=lambda shape: shape.name)
def test_a_shape_can_be_run_again_and_again(shape: Shape) -> None:
    run = work_of(shape, CPU, torch.float32)
    run()
    run()


def test_the_three_products_of_a_layer_have_its_three_shapes() -> None:
    shapes = {
        part: work_of(Shape("product", (8, 16, 24), part), CPU, torch.float32)() for part in (FORWARD, INPUT, WEIGHT)
    }
    assert {part: tuple(out.shape) for part, out in shapes.items()} == {  # type: ignore[attr-defined]
        FORWARD: (8, 24), INPUT: (8, 16), WEIGHT: (24, 16),
    }  # fmt: skip


def _measure() -> tuple[str, float, int] | None:
    """The device as text (it holds a mapping that does not travel), the host's memory, and how many samples."""
    before = session.shapes_for
    session.shapes_for = lambda device: SMALL
    try:
        found = session.measure_compute(read_place(), CPU, "my CPU", "eager", lambda done, total: None, 0.0)
    finally:
        session.shapes_for = before
    if found is None:
        return None
    assert len(found.samples) == len(found.fitted_seconds)
    machine = Machine(2, 1, "my CPU", "cpu", "gloo", "")
    return to_toml(measured_cluster(machine, (), found.device)), found.host_memory_bytes, len(found.samples)


def test_a_session_gives_the_first_rank_a_device(ranks: RankPool) -> None:
    measured, other = ranks.run(_measure, world=2)
    assert other is None
    text, host, samples = measured
    device = read_toml(text).device
    assert samples == len(SMALL)
    assert device.name == "my CPU"
    assert device.memory_bytes == pytest.approx(host / 2)
    assert device.peak_flops.keys() == {"fp32", "bf16"}
    assert 0 < device.efficiency.matmul <= 1
    assert 0 < device.efficiency.reserved_bytes < device.memory_bytes
