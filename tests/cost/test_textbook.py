"""The textbook accounts: what papers and lecture notes work out by hand must come out exactly."""

from __future__ import annotations

import pytest

from meshwright.cost.collectives import Tiers, all_reduce_seconds
from meshwright.cost.compute import rates
from meshwright.cost.data_parallel import Flow, gather_flows, step_flows
from meshwright.cost.layer import layer_exchanges
from meshwright.cost.pipeline import bubble_fraction
from meshwright.cost.shares import RankParameters
from meshwright.cost.states import state_shares
from meshwright.spec.cluster import Cluster, Device, Efficiency, Link
from meshwright.spec.columns import LayoutColumns, columns_of
from meshwright.spec.implementation import load_implementation
from meshwright.spec.layout import SCHEDULES, Layout
from meshwright.spec.model import Model
from meshwright.spec.optimizer import state_bytes
from meshwright.spec.workload import StateBytes, make_workload

GIB = 2.0**30
LOSSLESS = Efficiency(link=1.0, network=1.0)
DEVICE = Device("any", 80e9, 2e12, {"fp32": 20e12, "bf16": 300e12}, LOSSLESS)


def dense(parameters: float) -> RankParameters:
    return RankParameters(parameters, 0.0)


def flat(bytes_per_s: float, latency_s: float = 0.0, devices: int = 1024) -> Cluster:
    """All devices on one link."""
    link = Link("link", bytes_per_s, latency_s)
    return Cluster("flat", DEVICE, 1, devices, link, link, devices)


def ring(ranks: int, bytes_per_s: float, latency_s: float = 0.0) -> Tiers:
    """`ranks` on one link."""
    return Tiers(ranks, ranks, bytes_per_s, bytes_per_s, latency_s, latency_s)


def states(regime: str = "mixed") -> StateBytes:
    return state_bytes(make_workload(2048, 8, states=regime))


def data_parallel(stage: int, ranks: int) -> LayoutColumns:
    return columns_of(Layout(replicate=ranks) if stage == 0 else Layout(shard=ranks, zero_stage=stage))


def held(parameters: float, stage: int, ranks: int, regime: str = "mixed") -> float:
    """State bytes of one rank."""
    return float(sum(state_shares(dense(parameters), dense(parameters), states(regime), data_parallel(stage, ranks))))


def sent(parameters: float, stage: int, ranks: int) -> float:
    """Bytes that one rank sends in a step of one micro-batch."""
    share, layout, cluster = RankParameters(parameters, 0.0), data_parallel(stage, ranks), flat(1e9)
    flows: list[Flow] = [
        *gather_flows(share, states(), layout, cluster, 1.0),
        *step_flows(share, states(), layout, cluster, 1, load_implementation("fused")),
    ]
    return float(sum(flow.count * flow.sent for flow in flows))


@pytest.mark.parametrize(
    ("regime", "total"), [("mixed", 16), ("mixed-fp32-gradients", 18), ("mixed-dual-gradients", 20)]
)
def test_mixed_precision_adam_keeps_16_bytes_a_parameter_and_18_or_20_with_fp32_gradients(
    regime: str, total: int
) -> None:
    assert states(regime).total == total


# docs.nvidia.com/megatron-core, "Distributed Optimizer": 4 + 16/d in fp16, 6 + 12/d in bf16 with fp32 gradients.
@pytest.mark.parametrize("ranks", [1, 2, 8, 128])
@pytest.mark.parametrize(
    ("regime", "whole", "shared"), [("mixed-dual-gradients", 4, 16), ("mixed-fp32-gradients", 6, 12)]
)
def test_megatron_s_distributed_optimizer_shares_master_moments_and_main_gradients(
    regime: str, whole: int, shared: int, ranks: int
) -> None:
    assert held(1.0, 1, ranks, regime) == pytest.approx(whole + shared / ranks)


@pytest.mark.parametrize(("stage", "gib"), [(0, 106), (1, 36), (2, 25), (3, 13)])
def test_7_1_billion_parameters_on_8_ranks(stage: int, gib: int) -> None:
    assert round(held(7.1e9, stage, 8) / GIB) == gib


# arXiv:1910.02054 figure 1: 7.5e9 parameters on 64 devices.
@pytest.mark.parametrize(("stage", "gigabytes"), [(0, 120), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_zero_paper_s_figure_1(stage: int, gigabytes: float) -> None:
    assert held(7.5e9, stage, 64) / 1e9 == pytest.approx(gigabytes, abs=0.05)


@pytest.mark.parametrize("ranks", [2, 8, 64])
def test_zero_1_and_2_send_what_ddp_sends_and_zero_3_half_as_much_again(ranks: int) -> None:
    ddp = 2 * 2 * 7.1e9 * (ranks - 1) / ranks
    assert [sent(7.1e9, stage, ranks) / ddp for stage in range(4)] == pytest.approx([1, 1, 1, 1.5])


@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 100])
def test_ring_all_reduce_is_2_d_minus_1_latencies_and_2_d_minus_1_over_d_of_the_bytes(ranks: int) -> None:
    size, bandwidth, alpha = 3e8, 25e9, 7e-6
    by_hand = 2 * (ranks - 1) * alpha + 2 * (ranks - 1) / ranks * size / bandwidth
    assert float(all_reduce_seconds(size, ring(ranks, bandwidth, alpha))) == pytest.approx(by_hand)


@pytest.mark.parametrize(
    ("ranks", "seconds"), [(2, 1.40), (4, 2.10), (8, 2.45), (16, 2.63), (32, 2.71), (64, 2.76), (128, 2.78)]
)
def test_14_gigabytes_of_gradients_over_10_gigabytes_a_second(ranks: int, seconds: float) -> None:
    # 2.625 s at 16 ranks: half a unit of the last digit
    assert float(all_reduce_seconds(14e9, ring(ranks, 10e9))) == pytest.approx(seconds, abs=0.0051)


@pytest.mark.parametrize(("micro_batches", "percent"), [(8, 46.7), (32, 17.9), (64, 9.9)])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_bubble_of_8_stages(schedule: str, micro_batches: int, percent: float) -> None:
    bubble = float(bubble_fraction(SCHEDULES.index(schedule), 8, micro_batches))
    assert bubble == pytest.approx(7 / (micro_batches + 7))
    assert round(100 * bubble, 1) == percent


def test_tensor_parallelism_all_reduces_112_mib_twice_forward_and_twice_backward_a_layer() -> None:
    model = Model("m", 32, 3584, 28, 28, 128, 4 * 3584, 32000, 4096, gated_mlp=False)
    work, cluster = make_workload(4096, 4), flat(300e9)
    layout = columns_of(Layout(tensor=4, sequence_parallel=False, micro_batch=4))
    software = load_implementation("fused")
    found = layer_exchanges(model, work, layout, cluster, rates(DEVICE, work, software), software)
    on = [x for x in found if float(x.forward + x.backward) > 0]
    assert [(x.axis, x.collective, float(x.forward), float(x.backward)) for x in on] == [("tensor", "all-reduce", 2, 2)]
    assert float(on[0].size) == 4 * 4096 * 3584 * 2 == 112 * 2**20
    assert float(on[0].sent) == pytest.approx(2 * 3 / 4 * 112 * 2**20)


def test_sequence_parallelism_moves_the_same_bytes() -> None:
    model = Model("m", 32, 3584, 28, 28, 128, 4 * 3584, 32000, 4096, gated_mlp=False)
    work, cluster, software = make_workload(4096, 4), flat(300e9), load_implementation("fused")
    totals = []
    for on in (False, True):
        layout = columns_of(Layout(tensor=4, sequence_parallel=on, micro_batch=4))
        found = layer_exchanges(model, work, layout, cluster, rates(DEVICE, work, software), software)
        totals.append(sum(float((x.forward + x.backward) * x.sent) for x in found))
    assert totals[0] == pytest.approx(totals[1])


def test_7_billion_parameters_of_20_bytes_are_140_gigabytes() -> None:
    assert held(7e9, 0, 1, "mixed-dual-gradients") == 140e9


def test_the_distributed_optimizer_keeps_28_9_gigabytes_of_7_billion_parameters_on_128_ranks() -> None:
    assert held(7e9, 1, 128, "mixed-dual-gradients") / 1e9 == pytest.approx(28.9, abs=0.05)


@pytest.mark.parametrize("ranks", [2, 8, 128])
def test_full_sharding_leaves_20_over_d_bytes_a_parameter(ranks: int) -> None:
    assert held(1.0, 3, ranks, "mixed-dual-gradients") == pytest.approx(20 / ranks)


def test_zero_1_turns_18_gigabytes_of_adam_states_into_2_25_on_8_ranks() -> None:
    def optimizer(stage: int) -> float:
        return float(state_shares(dense(1.5e9), dense(1.5e9), states(), data_parallel(stage, 8))[2])

    assert optimizer(0) == 18e9
    assert optimizer(1) == 2.25e9


def test_70_billion_parameters_on_8_ranks_by_zero_3_keep_130_gib_each() -> None:
    assert held(70e9, 3, 8) / GIB == pytest.approx(130, abs=0.5)


def test_100_billion_parameters_of_16_bytes_are_1_5_tebibytes() -> None:
    assert round(held(100e9, 0, 1) / 2**40, 1) == 1.5


# arXiv:2306.10209 table 1: 3M bytes between nodes become 0.75M.
def test_zero_plus_plus_sends_a_quarter_between_nodes() -> None:
    parameters, nodes = 1e9, 64
    far, near = Link("network", 25e9, 5e-6), Link("node", 300e9, 3e-6)
    cluster = Cluster("c", DEVICE, nodes, 8, near, far, 8)
    layout = Layout(shard=8 * nodes, zero_stage=3, quantized=("weights", "gradients"), secondary_shard=8)
    flows = gather_flows(RankParameters(parameters, 0.0), states(), columns_of(layout), cluster, 1.0)
    between = [f for f in flows if not (f.collective == "all-gather" and f.when == "backward")]
    assert sum(float(f.size) for f in between) == pytest.approx(0.75 * 2 * parameters)
    backward = next(f for f in flows if f.collective == "all-gather" and f.when == "backward")
    assert float(backward.sent) == pytest.approx(7 / 8 * float(backward.size))
