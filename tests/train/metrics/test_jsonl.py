"""metrics.jsonl holds every step once, also after crashes and resumed runs."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from meshwright.spec.errors import RequestError
from meshwright.train.metrics.jsonl import JsonlSink, read_steps

from .reports import report


def write(path: Path, steps: range, resumed: int = 0) -> None:
    sink = JsonlSink(path, resumed)
    for step in steps:
        sink.write(report(step))
    sink.close()


def steps(path: Path) -> list[int]:
    return [found["step"] for found in read_steps(path)]


def test_a_step_is_one_json_object_on_one_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    sink = JsonlSink(path)
    sink.write(report(1, mfu=0.4, loss_scale=65536.0, skipped=True, extra={"router_entropy": 1.5}))
    (line,) = path.read_text().splitlines()  # without waiting for the end of the run
    assert json.loads(line) == {
        "step": 1,
        "loss": 2.5,
        "grad_norm": 0.125,
        "lr": 3e-4,
        "tokens": 4096,
        "seconds": 0.5,
        "tokens_per_second": 8192.0,
        "memory_bytes": 3 * 2**30,
        "memory_kind": "peak of PyTorch's CUDA allocator",
        "mfu": 0.4,
        "loss_scale": 65536.0,
        "skipped": True,
        "router_entropy": 1.5,
    }
    sink.close()


def test_numbers_that_json_does_not_know_are_null(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    sink = JsonlSink(path)
    sink.write(report(1, loss=math.nan, grad_norm=math.inf))
    sink.close()
    (found,) = read_steps(path)
    assert (found["loss"], found["grad_norm"], found["lr"]) == (None, None, 3e-4)


def test_a_resumed_run_keeps_the_steps_up_to_its_own_and_writes_the_others_again(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, range(1, 8))
    write(path, range(5, 10), resumed=4)
    assert steps(path) == [1, 2, 3, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("cut", [1, 2, 20, 100])
def test_half_a_line_left_by_a_crash_is_dropped(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, range(1, 4))
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    assert steps(path) == [1, 2]
    write(path, range(3, 5), resumed=3)
    assert steps(path) == [1, 2, 3, 4]
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_a_last_block_of_zeros_left_by_a_power_cut_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, range(1, 3))
    for rubbish in (b"\0" * 512, b"\0" * 511 + b"\n"):
        whole = path.read_bytes()
        path.write_bytes(whole + rubbish)
        write(path, range(0), resumed=2)
        assert path.read_bytes() == whole


def test_a_line_that_no_run_wrote_is_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, range(1, 4))
    first, *rest = path.read_text().splitlines(keepends=True)
    text = "".join([first, "hello\n", *rest])
    path.write_text(text)
    with pytest.raises(RequestError, match=r"metrics.jsonl, line 2: not a step"):
        JsonlSink(path, 2)
    assert path.read_text() == text


def test_a_new_run_moves_the_older_file_aside(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    for last in (2, 3, 4):
        write(path, range(1, last))
    assert steps(path) == [1, 2, 3]
    assert steps(tmp_path / "metrics.1.jsonl") == [1]
    assert steps(tmp_path / "metrics.2.jsonl") == [1, 2]


def test_a_full_disk_is_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = JsonlSink(tmp_path / "metrics.jsonl")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.write", full)
    with pytest.raises(RequestError, match=r"Cannot write .*metrics.jsonl: No space left"):
        sink.write(report(1))


def test_a_further_number_may_not_hide_one_of_the_step() -> None:
    with pytest.raises(ValueError, match="loss"):
        report(1, extra={"loss": 1.0}).numbers()
