"""Who is waited for: real traces of two gloo ranks, and GPU traces made by hand."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import multiprocessing
from torch.profiler import ProfilerActivity, profile

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.finding import INFO, Finding
from tests.diagnose.traces.made import Made

STEPS, DELAY = 8, 0.05
SAMPLES = Path(__file__).parents[4] / "shared" / "data" / "diagnosis" / "traces"


def found_in(folder: Path) -> tuple[Finding, ...]:
    return tuple(one for one in diagnose([folder]).findings if one.severity != INFO)


def _run(rank: int, folder: str) -> None:
    os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=60))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(128, 128)] * 3))
    for name, delay in (("healthy", 0.0), ("delayed", DELAY)):
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            for step in range(STEPS):
                with torch.profiler.record_function(f"ProfilerStep#{step}"):
                    time.sleep(0.02 + delay * rank)
                    model(torch.ones(4, 128)).sum().backward()
        seen.export_chrome_trace(f"{folder}/{name}/rank{rank}.json")
    store.set(f"done {rank}", "")
    store.wait([f"done {other}" for other in range(2)])
    os._exit(0)


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two folders of two real traces each."""
    folder = tmp_path_factory.mktemp("gloo")
    for name in ("healthy", "delayed"):
        (folder / name).mkdir()
    context = multiprocessing.get_context("spawn")
    ranks = [context.Process(target=_run, args=(rank, str(folder))) for rank in range(2)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join(90)
        assert one.exitcode == 0
    return folder


def test_a_delayed_rank_of_two_is_named_with_its_delay(traced: Path) -> None:
    (one,) = found_in(traced / "delayed")
    assert (one.category, one.ranks) == ("straggler_cpu", (1,))
    told = re.search(r"wait ([\d.]+) ms a step", one.cause)
    assert told is not None
    assert float(told[1]) == pytest.approx(DELAY * 1e3, rel=0.1)


def test_of_two_ranks_alike_none_is_named(traced: Path) -> None:
    assert found_in(traced / "healthy") == ()


def gpu_job(change: Callable[[Made, int], float], *, ranks: int = 4, clock: float = 0.0, steps: int = 5) -> list[Made]:
    """Steps of 100 ms: 60 ms of kernels, an all-reduce of 10 ms that all leave together, the rest of the host.

    `change` adds events to a rank at the start of a step (ms) and says by how much (ms) it comes later.
    """
    made = [Made(rank, ranks, clock * rank) for rank in range(ranks)]
    for step in range(steps):
        start = 200.0 * step
        late = [change(one, step) for one in made]
        end = start + 80 + max(late)
        for one, own in zip(made, late, strict=True):
            one.step(step, start, 190)
            one.collective("allreduce", start + 70 + own, end - (start + 70 + own), 64e6, members=ranks,
                           launched=start + 0.5)  # fmt: skip
    return made


def compute(made: Made, step: int, length: float = 60.0, start: float = 1.0) -> None:
    for n in range(6):
        made.kernel("gemm", 200.0 * step + start + n * length / 6, length / 6, launched=200.0 * step + 0.1)


def slow_device(made: Made, step: int) -> float:
    slow = made.rank == 2
    compute(made, step, 90 if slow else 60)
    return 30.0 if slow else 0.0


def slow_data(made: Made, step: int) -> float:
    late = 40.0 if made.rank == 1 else 0.0
    made.kernel("copy", 200.0 * step + 0.5, 0.1, launched=200.0 * step + 0.1)
    made.span("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
              200.0 * step + 1, late or 0.5)  # fmt: skip
    compute(made, step, start=1 + late)
    return late


def collecting(made: Made, step: int) -> float:
    late = 40.0 if made.rank == 3 else 0.0
    made.kernel("copy", 200.0 * step + 0.5, 0.1, launched=200.0 * step + 0.1)
    if late:
        made.span("python_function", "gc.py(12): collect", 200.0 * step + 1, late)
    compute(made, step, start=1 + late)
    return late


def collecting_in_turn(made: Made, step: int) -> float:
    """Each step another rank."""
    late = 40.0 if made.rank == step % 4 else 0.0
    made.kernel("copy", 200.0 * step + 0.5, 0.1, launched=200.0 * step + 0.1)
    if late:
        made.span("user_annotation", "gc.collect", 200.0 * step + 1, late)
    compute(made, step, start=1 + late)
    return late


def alike(made: Made, step: int) -> float:
    compute(made, step)
    return 2.0 * ((made.rank or 0) == step % 4)


@pytest.mark.parametrize(
    ("change", "category", "ranks", "delay"),
    [
        (slow_device, "straggler_gpu", (2,), "30.0 ms"),
        (slow_data, "dataloader_bound", (1,), "40.0 ms"),
        (collecting, "straggler_gc", (3,), "40.0 ms"),
        (collecting_in_turn, "straggler_gc", (0, 1, 2, 3), "5 of 5 steps"),
    ],
)
@pytest.mark.parametrize("clock", [0.0, 3.6e6])
def test_what_the_last_one_did_meanwhile_is_told_whatever_its_clock_says(
    change: Callable[[Made, int], float], category: str, ranks: tuple[int, ...], delay: str, clock: float,
    tmp_path: Path,
) -> None:  # fmt: skip
    for one in gpu_job(change, clock=clock):
        one.save(tmp_path)
    first = found_in(tmp_path)[0]
    assert (first.category, first.ranks) == (category, ranks)
    assert delay in first.cause


def test_ranks_that_differ_by_little_are_not_accused(tmp_path: Path) -> None:
    for one in gpu_job(alike):
        one.save(tmp_path)
    assert found_in(tmp_path) == ()


def test_the_gain_is_what_the_second_latest_leaves(tmp_path: Path) -> None:
    """Without the one that is 40 ms late, the step still waits for the one that is 30 ms late."""

    def two_late(made: Made, step: int) -> float:
        late = {1: 30.0, 2: 40.0}.get(made.rank or 0, 0.0)
        compute(made, step, 60 + late)
        return late

    for one in gpu_job(two_late):
        one.save(tmp_path)
    found = {one.ranks: one.cause for one in found_in(tmp_path) if one.category == "straggler_gpu"}
    # A step is 200 ms: 10 of them are saved by the later one alone, none by the other.
    assert "would be 5% shorter" in found[2,]
    assert "would be 0% shorter" in found[1,]


def test_collectives_that_do_not_end_together_are_not_the_same_one(tmp_path: Path) -> None:
    """Each rank's trace lacks another one, as in sampled traces: the n-th of one is not the n-th of the other."""
    for rank in range(2):
        made = Made(rank)
        for step in range(6):
            start = 200.0 * step
            made.step(step, start, 190)
            made.kernel("gemm", start + 1, 20)
            ends = [start + 70, start + 90 + 7 * step, start + 150 + 3 * step]
            for n, length in enumerate((40.0, 1.0, 1.0)):
                if n != 2 * (1 - rank):
                    made.collective("allreduce", ends[n] - length, length, 4e6)
        made.save(tmp_path)
    assert found_in(tmp_path) == ()


def test_stages_of_a_pipeline_do_not_wait_for_a_straggler(tmp_path: Path) -> None:
    """The first stage ends its backward last, so all wait for it in the norm of the gradients: as they must."""
    for rank in range(2):
        made = Made(rank)
        for step in range(4):
            start = 200.0 * step
            made.step(step, start, 190)
            made.kernel("gemm", start + 1, 60)
            kind = "recv" if rank else "send"
            made.collective(kind, start + 62, 1, 1e6, group="1", description="pp")
            late = 40.0 * (1 - rank)
            made.collective("allreduce", start + 100 + late, 50 - late, 4)
        made.save(tmp_path)
    assert found_in(tmp_path) == ()


def test_one_that_spoils_some_steps_is_named_for_those(tmp_path: Path) -> None:
    """Rank 0 saves for 100 ms in three steps of five."""

    def saves(made: Made, step: int) -> float:
        late = 100.0 if made.rank == 0 and step in (0, 2, 4) else 0.0
        made.kernel("copy", 200.0 * step + 0.5, 0.1, launched=200.0 * step + 0.1)
        compute(made, step, start=1 + late)
        return late

    for one in gpu_job(saves, steps=5):
        one.save(tmp_path)
    (one,) = found_in(tmp_path)
    assert (one.category, one.ranks) == ("straggler_cpu", (0,))
    assert "In 3 of 5 steps" in one.cause


def test_ranks_without_a_number_are_called_by_their_file(tmp_path: Path) -> None:
    made = gpu_job(slow_device)
    for one in made:
        one.rank = None
        one.save(tmp_path)
    first = found_in(tmp_path)[0]
    assert (first.category, first.ranks) == ("straggler_gpu", ())
    assert "host_2.json" in first.cause


@pytest.mark.skipif(not SAMPLES.exists(), reason="no ../shared here")
def test_public_traces_of_healthy_jobs_accuse_nobody() -> None:
    """Among them two ranks that HolisticTraceAnalysis calls stragglers, as it calls any two."""
    found = diagnose([SAMPLES])
    assert not [one for one in found.findings if one.severity != INFO]
    assert all(one.kind == "trace" and not one.problem for one in found.inputs)
    assert any("idle" in line for line in found.checked)
