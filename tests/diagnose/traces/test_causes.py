"""What the traces of one job say is slow: launches, data, allocations, messages, stages, experts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.finding import INFO, Finding
from meshwright.diagnose.traces.collectives import bus_bandwidth
from tests.diagnose.traces.made import Made


def found_in(folder: Path, made: Sequence[Made], *, info: bool = False) -> tuple[Finding, ...]:
    for one in made:
        one.save(folder)
    return tuple(one for one in diagnose([folder]).findings if info or one.severity != INFO)


def launches(count: int, length: float, apart: float) -> Made:
    """Steps of kernels that start when they are launched; milliseconds."""
    made = Made(0, 1)
    for step in range(3):
        start = 100.0 * step
        made.step(step, start, 98)
        for n in range(count):
            made.span("cpu_op", "aten::add", start + n * apart, apart * 0.9)
            made.kernel("add", start + n * apart + 0.01, length)
    return made


def test_a_thousand_small_kernels_and_an_idle_device_are_launch_bound(tmp_path: Path) -> None:
    """As lerobot#4612 has it: 1150 kernels, the device busy for a third."""
    (one,) = found_in(tmp_path, [launches(1150, 0.008, 0.027)])
    assert (one.category, one.ranks) == ("cpu_launch_bound", (0,))
    assert "1,150 kernels a step of 8.0 us" in one.cause


@pytest.mark.parametrize(("count", "length", "apart"), [(1150, 0.025, 0.027), (100, 0.3, 0.9), (50, 0.01, 1.9)])
def test_a_busy_device_or_few_kernels_are_not(count: int, length: float, apart: float, tmp_path: Path) -> None:
    assert found_in(tmp_path, [launches(count, length, apart)]) == ()


def loading(waits: Sequence[float]) -> Made:
    made = Made(0, 1)
    for step, wait in enumerate(waits):
        start = 100.0 * step
        made.step(step, start, 98)
        made.kernel("first", start + 0.02, 1)
        made.span("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", start + 2, wait)
        made.kernel("gemm", start + 2 + wait, 96 - wait)
    return made


def test_waiting_for_data_is_told_with_its_share(tmp_path: Path) -> None:
    (one,) = found_in(tmp_path, [loading([30.0] * 6)])
    assert one.category == "dataloader_bound"
    assert one.cause.startswith("30%")


def test_a_wait_every_fourth_step_tells_the_number_of_workers(tmp_path: Path) -> None:
    (one,) = found_in(tmp_path, [loading([0.1, 80, 0.1, 0.1, 0.1, 80, 0.1, 0.1, 0.1, 80, 0.1])])
    assert one.category == "dataloader_bound"
    assert "every 4 steps" in one.cause


def test_loading_beside_a_busy_device_costs_nothing(tmp_path: Path) -> None:
    made = loading([1.0] * 6)
    for step in range(6):
        made.span("user_annotation", "enumerate(DataLoader)#_Iter.__next__", 100.0 * step + 5, 60)
    assert found_in(tmp_path, [made]) == ()


@pytest.mark.parametrize(("until", "found"), [(6, ("alloc_retries",)), (3, ())])
def test_freeing_in_settled_steps_is_a_retry(until: int, found: tuple[str, ...], tmp_path: Path) -> None:
    """In the first steps alone, memory only grows to its size."""
    made = Made(0, 1)
    for step in range(6):
        made.step(step, 100.0 * step, 98)
        made.kernel("gemm", 100.0 * step + 0.02, 95)
        if step < until:
            for name in ("cudaFree", "cudaMalloc"):
                made.span("cuda_runtime", name, 100.0 * step + 20, 3)
    assert tuple(one.category for one in found_in(tmp_path, [made])) == found


def messages(small: int, *, waits: float = 0.0) -> list[Made]:
    """Two ranks: in each step one all-reduce of 100 MB in 10 ms and `small` of 1 MB in 1 ms; rank 0 waits in them."""
    made = [Made(rank, 2) for rank in range(2)]
    for one in made:
        for step in range(3):
            start = 200.0 * step
            one.step(step, start, 198)
            one.kernel("gemm", start + 0.02, 20)
            one.collective("allreduce", start + 30, 10, 100e6)
            for n in range(small):
                wait = waits if one.rank == 0 else 0.0
                one.collective("allreduce", start + 50 + n * 3 - wait, 1 + wait, 1e6)
    return made


def test_small_messages_that_take_most_of_the_time_are_named(tmp_path: Path) -> None:
    (one,) = found_in(tmp_path, messages(40))
    assert one.category == "small_messages"
    assert "80%" in one.cause  # 40 of 50 ms
    assert (
        "reach 1.00 GB/s on the bus; larger ones reach 10.0 GB/s" in one.cause
    )  # of two, an all-reduce's bus = bytes/s


@pytest.mark.parametrize(("small", "waits"), [(4, 0.0), (4, 1.9)])
def test_few_small_messages_are_not_even_if_one_rank_waits_in_them(small: int, waits: float, tmp_path: Path) -> None:
    found = found_in(tmp_path, messages(small, waits=waits), info=True)
    assert "small_messages" not in {one.category for one in found}


def test_bus_bandwidth_is_nccl_tests() -> None:
    """nccl-tests, doc/PERFORMANCE.md: 2(n-1)/n for all-reduce, (n-1)/n for what is gathered or scattered."""
    assert bus_bandwidth("all-reduce", 8e9, 1.0, 8) == pytest.approx(14e9)
    assert bus_bandwidth("all-gather", 8e9, 1.0, 8) == pytest.approx(7e9)
    assert bus_bandwidth("all-reduce", 8e9, 1.0, 1) is None
    assert bus_bandwidth("recv", 8e9, 1.0, 2) is None


def sharing(kinds: Sequence[str], description: str, members: int, length: float) -> list[Made]:
    """Steps of 100 ms on two traced ranks, with collectives of 32 MB that nothing hides."""
    made = [Made(rank, members) for rank in range(2)]
    for one in made:
        for step in range(3):
            one.step(step, 100.0 * step, 99)
            one.kernel("gemm", 100.0 * step + 0.02, 30)
            for n, kind in enumerate(kinds):
                one.collective(kind, 100.0 * step + 31 + n * length, length, 32e6, description=description,
                               members=members)  # fmt: skip
    return made


@pytest.mark.parametrize(
    ("kinds", "description", "members", "category"),
    [
        (["allreduce"] * 4, "TENSOR_MODEL_PARALLEL_GROUP", 16, "tp_comm_bound"),
        (["allreduce"] * 4, "mesh_tp", 4, "tp_comm_bound"),
        (["_allgather_base", "_allgather_base", "_allgather_base", "_reduce_scatter_base"], "fsdp", 32,
         "zero3_internode"),
        (["allreduce"] * 4, "mesh_dp", 32, "slow_network_other"),
    ],
)  # fmt: skip
def test_exposed_communication_is_called_after_its_group(
    kinds: list[str], description: str, members: int, category: str, tmp_path: Path
) -> None:
    (one,) = found_in(tmp_path, sharing(kinds, description, members, 15.0))
    assert one.category == category
    assert "62%" in one.cause  # 180 ms of 100, 100 and 91


def test_communication_of_one_traced_rank_may_be_waiting_so_it_is_information(tmp_path: Path) -> None:
    (one,) = found_in(tmp_path, sharing(["allreduce"] * 4, "mesh_dp", 32, 15.0)[:1], info=True)
    assert (one.category, one.severity) == ("slow_network_other", INFO)


def stages(milliseconds: Sequence[float], micro: int = 8) -> list[Made]:
    """Ranges of one pipeline: each stage computes so long for each micro-batch, forward and backward together."""
    made = [Made(rank, len(milliseconds)) for rank in range(len(milliseconds))]
    for stage, (one, length) in enumerate(zip(made, milliseconds, strict=True)):
        for step in range(2):
            one.step(step, 1000.0 * step, 990)
            for n in range(micro):
                for half, phase in enumerate(("forward", "backward")):
                    start = 1000.0 * step + stage * 5 + (2 * n + half) * 20
                    one.span("user_annotation", f"meshwright:{phase} stage {stage} micro-batch {n}", start - 0.05, 0.05)
                    one.kernel("gemm", start, length / 2, launched=start - 0.02)
    return made


def test_the_stage_that_sets_the_clock_is_named_with_what_it_costs(tmp_path: Path) -> None:
    """aiconfigurator#1459: 7 stages of 3.15 ms and one of 3.901: balance 83.2 %."""
    (one,) = found_in(tmp_path, stages([3.15] * 7 + [3.901], micro=32))
    assert (one.category, one.ranks) == ("pipeline_imbalance", (7,))
    assert "wait 17% of the time" in one.cause
    assert "the last one" in one.cause
    assert "equal stages would be 18%" in one.cause  # 7/39


def test_equal_stages_are_not_but_their_bubble_is_told(tmp_path: Path) -> None:
    (one,) = found_in(tmp_path, stages([3.0] * 4, micro=4), info=True)
    assert (one.category, one.severity) == ("pipeline_imbalance", INFO)
    assert "43%" in one.cause  # 3/7


def test_stages_are_known_by_their_groups_too(tmp_path: Path) -> None:
    made = [Made(rank, 2) for rank in range(2)]
    for one, length in zip(made, (20.0, 40.0), strict=True):
        for step in range(3):
            one.step(step, 100.0 * step, 99)
            one.kernel("gemm", 100.0 * step + 1, length)
            kind = "send" if one.rank == 0 else "recv"
            one.collective(kind, 100.0 * step + 50, 1, 1e6, description="PIPELINE_MODEL_PARALLEL_GROUP")
    (found,) = found_in(tmp_path, made)
    assert (found.category, found.ranks) == ("pipeline_imbalance", (1,))


def experts(received: Sequence[float]) -> list[Made]:
    made = [Made(rank, len(received)) for rank in range(len(received))]
    for one, size in zip(made, received, strict=True):
        for step in range(3):
            one.step(step, 100.0 * step, 99)
            one.kernel("gemm", 100.0 * step + 1, 80)
            one.collective("all_to_allv", 100.0 * step + 85, 2, 4e6, received=size * 1e6,
                           description="EXPERT_MODEL_PARALLEL_GROUP", members=len(received))  # fmt: skip
    return made


def test_the_rank_of_the_hottest_expert_is_named(tmp_path: Path) -> None:
    """vllm#21497: 30 experts on 8 ranks, 3 on each but 9 on the last: 2.4 times the mean."""
    (one,) = found_in(tmp_path, experts([3] * 7 + [9]))
    assert (one.category, one.ranks) == ("moe_imbalance", (7,))
    assert "2.40 times" in one.cause


def test_experts_that_receive_much_the_same_are_not(tmp_path: Path) -> None:
    assert found_in(tmp_path, experts([4, 4.5, 3.8, 4.2])) == ()
