"""Offload: host memory and seconds by hand, and the memory that leaves the device."""

from __future__ import annotations

import pytest

from meshwright.cost.offload import HOST_ADAM_BYTES_PER_S, host_bytes, offload_seconds
from meshwright.cost.shares import RankParameters
from meshwright.cost.states import state_shares
from meshwright.spec.cluster import Cluster, Device, Link
from meshwright.spec.columns import columns_of, stack
from meshwright.spec.layout import Layout
from meshwright.spec.optimizer import state_bytes
from meshwright.spec.workload import make_workload

STATES = state_bytes(make_workload(1024, 8))
PARAMETERS = 8e9
LINK, DISK = 20e9, 10e9


def cluster(devices: int = 8) -> Cluster:
    link = Link("link", 300e9, 1e-6)
    device = Device("any", 80e9, 2e12, {"bf16": 300e12})
    return Cluster("c", device, 1, devices, link, link, 8, host_link=Link("host", LINK, 1e-5), nvme_bytes_per_s=DISK)


def dense(parameters: float) -> RankParameters:
    return RankParameters(parameters, 0.0)


WHOLE = dense(PARAMETERS)


def seconds(offload: tuple[str, ...], stage: int = 2, ranks: int = 8) -> float:
    layout = columns_of(Layout(shard=ranks, zero_stage=stage, offload=offload))
    return float(offload_seconds(WHOLE, WHOLE, STATES, layout, cluster(), 1))


def host(offload: tuple[str, ...], stage: int = 2, ranks: int = 8) -> float:
    layout = columns_of(Layout(shard=ranks, zero_stage=stage, offload=offload))
    return float(host_bytes(WHOLE, WHOLE, STATES, layout, cluster()))


def test_nothing_offloaded_costs_nothing() -> None:
    assert seconds(()) == 0.0
    assert host(()) == 0.0


def test_the_host_holds_master_weights_moments_and_a_gradient_buffer() -> None:
    """4 + 8 + 2 bytes for each of 8e9 parameters, whether 8 ranks share them or one device has them all."""
    assert host(("optimizer",)) == pytest.approx(14 * PARAMETERS)
    alone = columns_of(Layout(offload=("optimizer",)))
    assert float(host_bytes(WHOLE, WHOLE, STATES, alone, cluster(1))) == pytest.approx(14 * PARAMETERS)


def test_every_unsharded_device_of_a_node_needs_its_own_copy() -> None:
    ddp = columns_of(Layout(replicate=8, offload=("optimizer",)))
    assert float(host_bytes(WHOLE, WHOLE, STATES, ddp, cluster())) == pytest.approx(8 * 14 * PARAMETERS)


def test_offloaded_parameters_add_their_16_bit_copy() -> None:
    assert host(("optimizer", "parameters"), stage=3) == pytest.approx((14 + 2) * PARAMETERS)


def test_nvme_leaves_only_the_gradient_buffer_in_host_memory() -> None:
    assert host(("optimizer", "nvme")) == pytest.approx(2 * PARAMETERS)


def test_a_step_moves_4_bytes_a_parameter_over_the_link_and_28_in_host_memory() -> None:
    """arXiv:2101.06840 section 3: 2M of gradients down and 2M of parameters up; Adam reads and writes 4 + 8 + 2."""
    transfer = 4 * PARAMETERS / 8 / LINK
    update = 2 * 14 * PARAMETERS / HOST_ADAM_BYTES_PER_S
    assert seconds(("optimizer",)) == pytest.approx(transfer + update)


def test_offloaded_parameters_cross_the_link_twice_and_gradients_once() -> None:
    """Up to forward and to backward, and the gradients down (arXiv:2104.07857): 2 bytes each on a rank's share."""
    update = 2 * 14 * PARAMETERS / HOST_ADAM_BYTES_PER_S
    both = seconds(("optimizer", "parameters"), stage=3)
    assert both - update == pytest.approx(3 * 2 * PARAMETERS / 8 / LINK)


def test_nvme_reads_and_writes_the_states_once() -> None:
    """12 bytes a parameter of all the node's devices, twice, at the node's 10 GB/s."""
    more = seconds(("optimizer", "nvme")) - seconds(("optimizer",))
    assert more == pytest.approx(2 * 12 * PARAMETERS / DISK)


def test_twice_the_nodes_halve_the_time() -> None:
    assert seconds(("optimizer",), ranks=16) == pytest.approx(seconds(("optimizer",), ranks=8) / 2)


# github.com/deepspeedai/DeepSpeed pull request 735: 8.2 s for 11.6e9 parameters of a GPT-2. Issue 6834: about 10 s for
# a quarter of Qwen-72B's 72.7e9 parameters on a node.
@pytest.mark.parametrize(("parameters", "measured"), [(11.6e9, 8.2), (72.7e9 / 4, 10.0)])
def test_an_update_on_the_host_takes_what_users_of_cpu_adam_report_within_a_third(
    parameters: float, measured: float
) -> None:
    layout = columns_of(Layout(offload=("optimizer",)))
    whole = dense(parameters)
    update = float(offload_seconds(whole, whole, STATES, layout, cluster(1), 1)) - 4 * parameters / LINK
    assert update == pytest.approx(measured, rel=1 / 3)


@pytest.mark.parametrize("regime", ["mixed", "mixed-fp32-gradients", "mixed-dual-gradients", "pure"])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_what_leaves_the_devices_arrives_on_the_host(regime: str, stage: int) -> None:
    per = state_bytes(make_workload(1024, 8, states=regime))

    def layout(*offload: str) -> Layout:
        split = {"shard": 8} if stage else {"replicate": 8}
        return Layout(zero_stage=stage, offload=offload, **split)

    def device(*offload: str) -> float:
        return float(sum(state_shares(WHOLE, WHOLE, per, columns_of(layout(*offload)))))

    gone = 8 * (device() - device("optimizer"))
    arrived = float(host_bytes(WHOLE, WHOLE, per, columns_of(layout("optimizer")), cluster()))
    assert gone > 0
    assert arrived >= gone


def test_frozen_parameters_have_nothing_to_offload_but_themselves() -> None:
    """A twentieth of the parameters learns: a twentieth of the states goes to the host, all 16-bit copies do."""
    layout = columns_of(Layout(shard=8, zero_stage=3, offload=("optimizer", "parameters")))
    arrived = float(host_bytes(dense(PARAMETERS / 20), WHOLE, STATES, layout, cluster()))
    assert arrived == pytest.approx((14 / 20 + 2) * PARAMETERS)


def test_columns_price_like_single_layouts() -> None:
    layouts = [
        Layout(shard=8, zero_stage=2),
        Layout(shard=8, zero_stage=2, offload=("optimizer",)),
        Layout(shard=8, zero_stage=3, offload=("optimizer", "parameters", "nvme")),
    ]
    for function, more in ((offload_seconds, (4,)), (host_bytes, ())):
        together = function(WHOLE, WHOLE, STATES, stack(layouts), cluster(), *more)
        alone = [float(function(WHOLE, WHOLE, STATES, columns_of(x), cluster(), *more)) for x in layouts]
        assert list(together) == pytest.approx(alone)


def test_offloaded_parameters_come_up_twice_for_every_micro_batch_and_gradients_go_down_once() -> None:
    """arXiv:2104.07857 section 5.1: up for forward and for backward: 2 x 4 + 1 crossings with four micro-batches."""
    layout = columns_of(Layout(shard=8, zero_stage=3, offload=("optimizer", "parameters")))
    one, four = (float(offload_seconds(WHOLE, WHOLE, STATES, layout, cluster(), m)) for m in (1, 4))
    assert four - one == pytest.approx(6 * 2 * PARAMETERS / 8 / LINK)


def test_devices_of_a_node_that_the_job_leaves_idle_need_no_host_memory() -> None:
    layout = columns_of(Layout(replicate=2, offload=("optimizer",)))
    assert float(host_bytes(WHOLE, WHOLE, STATES, layout, cluster())) == pytest.approx(2 * 14 * PARAMETERS)
