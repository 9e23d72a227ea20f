"""A bench's runs in their order, kept on disk: with a crew that only says how it would have been."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from meshwright.bench.case import Case
from meshwright.bench.crew import Outcome, failure
from meshwright.bench.request import Request, layouts_of
from meshwright.bench.result import DONE, OUT_OF_MEMORY, REFUSED
from meshwright.bench.sweep import Sweep
from meshwright.spec.errors import RequestError
from meshwright.train.launch.pool import RankError

NANO = str(Path(__file__).parents[1] / "check" / "models" / "nano-llama.json")


def request_of(layouts: str, **more: Any) -> Request:
    flags = {
        "model": NANO,
        "train.seq_len": "16",
        "train.global_batch": "8",
        "launch.device": "cpu",
        "data.source": "synthetic",
    }
    return Request(layouts_of([layouts], []), flags, **{"one_process": False, "repeats": 2, **more})


def measured(case: Case, ranks: int, seconds: float) -> Outcome:
    one = {
        "node": 0, "seconds": [seconds] * case.steps, "skipped": 0, "loss": [2.0, 1.0], "grad_norm": [1.0, 1.0],
        "memory_bytes": 10.0,
        "memory_kind": "counted", "states": {"parameters": 4.0, "optimizer": 5.0}, "joules": None, "traffic": [],
        "pipeline_rank": 0, "stages": [0], "traced": None,
    }  # fmt: skip
    return Outcome(DONE, ranks=[{**one, "rank": rank} for rank in range(ranks)])


class Told:
    """A crew that does what it is told, and remembers what it was asked."""

    def __init__(self, says: Callable[[Case, int], Outcome]) -> None:
        self.says = says
        self.asked: list[str] = []
        self.first = True

    def run(self, case: Case, ranks: int, folder: Path, timeout: float) -> Outcome:
        self.asked.append(case.flags["layout"])
        return self.says(case, ranks)

    def agree(self, known: dict[int, Outcome]) -> dict[int, Outcome]:
        return known

    def close(self) -> None:
        pass


def fine(case: Case, ranks: int) -> Outcome:
    return measured(case, ranks, 0.5)


def test_an_interrupted_sweep_goes_on_with_the_runs_that_are_left(tmp_path: Path) -> None:
    request = request_of("ddp2, fsdp2, tp2")

    def interrupted(case: Case, ranks: int) -> Outcome:
        if len(crew.asked) == 4:
            raise KeyboardInterrupt
        return fine(case, ranks)

    crew = Told(interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(Sweep(request, tmp_path).run(crew))
    again = Told(fine)
    found = list(Sweep(request, tmp_path).run(again))[-1]
    order = [run.label for run in Sweep(request, tmp_path).order]
    assert crew.asked[:3] + again.asked == order
    assert found.finished == found.planned == len(order)
    assert {row.label: len(row.step.values) for row in found.rows if row.step} == {"ddp2": 30, "fsdp2": 20, "tp2": 20}
    third = Told(fine)
    assert list(Sweep(request, tmp_path).run(third))[-1].rows == found.rows
    assert third.asked == []


def test_a_layout_that_fails_once_is_not_tried_again_and_keeps_its_reason(tmp_path: Path) -> None:
    def short(case: Case, ranks: int) -> Outcome:
        if case.flags["layout"].startswith("ddp2"):
            return fine(case, ranks)
        return failure(RankError("rank 1: killed by SIGKILL (killed by the kernel: out of host memory?)"))

    crew = Told(short)
    found = list(Sweep(request_of("ddp2, fsdp2"), tmp_path).run(crew))[-1]
    assert crew.asked.count("fsdp2") == 1
    row = found.rows[1]
    assert (row.status, row.step) == (OUT_OF_MEMORY, None)
    assert "SIGKILL" in row.reason
    assert found.finished == found.planned


def test_a_layout_that_cannot_run_is_a_row_from_the_start(tmp_path: Path) -> None:
    first = next(iter(Sweep(request_of("ddp2, tp3"), tmp_path).run(Told(fine))))
    assert [(row.label, row.status) for row in first.rows] == [("tp3", REFUSED)]


def test_a_run_that_failed_is_tried_again_when_the_bench_goes_on(tmp_path: Path) -> None:
    def lost(case: Case, ranks: int) -> Outcome:
        return failure(RuntimeError("address already in use")) if case.flags["layout"] == "fsdp2" else fine(case, ranks)

    list(Sweep(request_of("ddp2, fsdp2"), tmp_path).run(Told(lost)))
    again = Told(fine)
    found = list(Sweep(request_of("ddp2, fsdp2"), tmp_path).run(again))[-1]
    assert again.asked == ["fsdp2", "fsdp2"]
    assert [row.status for row in found.rows] == [DONE, DONE]


def test_only_the_first_run_of_a_row_is_traced(tmp_path: Path) -> None:
    traced: list[tuple[str, int]] = []

    def note(case: Case, ranks: int) -> Outcome:
        traced.append((case.flags["layout"], case.traced))
        return fine(case, ranks)

    list(Sweep(request_of("ddp2, fsdp2"), tmp_path).run(Told(note)))
    for layout in ("ddp2", "fsdp2"):
        counts = [steps for name, steps in traced if name == layout]
        assert counts[0] == 2
        assert not any(counts[1:])


def test_the_folder_of_another_bench_is_left_alone(tmp_path: Path) -> None:
    list(Sweep(request_of("ddp2"), tmp_path).run(Told(fine)))
    with pytest.raises(RequestError, match="another bench"):
        Sweep(request_of("ddp2", steps=99), tmp_path)
    fresh = Told(fine)
    list(Sweep(request_of("ddp2"), tmp_path, fresh=True).run(fresh))
    assert fresh.asked == ["ddp2", "ddp2"]


def test_losses_are_held_against_the_single_process(tmp_path: Path) -> None:
    def losses(case: Case, ranks: int) -> Outcome:
        found = measured(case, ranks, 0.5)
        for one in found.ranks:
            one["loss"] = [2.0, 1.0 if ranks == 1 else 1.1]
        return found

    found = list(Sweep(request_of("ddp2", one_process=True), tmp_path).run(Told(losses)))[-1]
    assert [row.loss_error for row in found.rows] == [0, pytest.approx(0.1)]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), OUT_OF_MEMORY),
        (RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"), OUT_OF_MEMORY),
        (ValueError("shapes differ"), "failed"),
        (RequestError("no such thing"), REFUSED),
    ],
)
def test_why_a_run_failed_is_told_apart(error: Exception, status: str) -> None:
    assert failure(error).status == status
