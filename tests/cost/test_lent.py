"""Pipeline ranks that share cores: what one waits, another computes in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright.cost.estimate import estimate
from meshwright.plan.shortlist import simulated_estimate
from meshwright.spec import load_model, parse_cluster, parse_layout
from meshwright.spec.workload import make_workload

MODEL = load_model("gpt2")
WORK = make_workload(256, 8, precision="fp32", implementation="host")


def seconds(text: str, lent: float, *, simulated: bool) -> float:
    base = parse_cluster("4xcpu")
    device = replace(base.device, memory_bytes=1e12, efficiency=replace(base.device.efficiency, lent=lent))
    cluster = replace(base, device=device)
    price = simulated_estimate if simulated else estimate
    return price(MODEL, cluster, WORK, parse_layout(text)).step_seconds


@pytest.mark.parametrize("simulated", [False, True])
def test_with_all_of_the_waiting_lent_every_schedule_takes_what_its_work_takes(simulated: bool) -> None:
    alone = [seconds(f"pp4:{name} mbs1", 0.0, simulated=simulated) for name in ("gpipe", "1f1b")]
    shared = [seconds(f"pp4:{name} mbs1", 1.0, simulated=simulated) for name in ("gpipe", "1f1b")]
    # (p-1)/(m+p-1) = 3/11 of an even pipeline is waiting; uneven stages wait longer.
    assert max(shared) < min(alone) * 8 / 11 * 1.05
    assert shared[0] == pytest.approx(shared[1], rel=1e-9)


def test_half_of_the_waiting_lent_is_half_way() -> None:
    none, half, all_ = (seconds("pp4:1f1b mbs1", lent, simulated=True) for lent in (0.0, 0.5, 1.0))
    assert half == pytest.approx((none + all_) / 2)


def test_a_layout_without_a_pipeline_has_nothing_to_lend() -> None:
    assert seconds("ddp4 mbs1", 1.0, simulated=True) == seconds("ddp4 mbs1", 0.0, simulated=True)
