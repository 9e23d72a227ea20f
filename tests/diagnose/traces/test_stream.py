"""Traces read in pieces: whole, packed, cut off, with control characters, hostile."""

from __future__ import annotations

import gzip
import io
import json
import random
from pathlib import Path
from typing import Any

import pytest

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.inputs import read_inputs
from meshwright.diagnose.topics import TOPICS
from meshwright.diagnose.traces import stream
from meshwright.diagnose.traces.columns import Columns
from meshwright.diagnose.traces.events import read_trace
from meshwright.diagnose.traces.ranks import Traces
from meshwright.diagnose.traces.stream import TraceStream, looks_like_trace
from meshwright.diagnose.traces.topic import read_rank
from tests.diagnose.traces.made import Made


def some(count: int) -> Made:
    made, chance = Made(3, 8), random.Random(3)
    for n in range(count):
        made.span("cpu_op", f'aten::mm }}, {{ "ph" [{n % 7}] \\', n, 0.5, deep=[{"ph": "X"}, {}], hash=chance.random())
    return made


def read(data: bytes) -> tuple[list[Any], TraceStream]:
    trace = TraceStream(io.BytesIO(data))
    return [event for batch in trace.batches() for event in batch], trace


@pytest.mark.parametrize("batch", [300, 5_000, 1 << 20])
@pytest.mark.parametrize("indent", [None, 2])
def test_pieces_hold_the_same_events_as_the_whole(batch: int, indent: int | None, monkeypatch: Any) -> None:
    """Whatever the pieces, and although names in it look like the boundary between two events."""
    monkeypatch.setattr(stream, "BATCH", batch)
    document = json.loads(some(400).text()) | {"baseTimeNanoseconds": 12}  # behind the events
    events, trace = read(json.dumps(document, indent=indent).encode())
    assert events == document["traceEvents"]
    assert trace.about["distributedInfo"]["rank"] == 3
    assert trace.about["baseTimeNanoseconds"] == 12
    assert trace.problem == ""


def test_a_list_without_a_header_is_a_trace_too() -> None:
    data = json.dumps(some(30).events).encode()
    assert looks_like_trace(data)
    assert len(read(data)[0]) == 30


@pytest.mark.parametrize("data", [b"", b"{}", b'{"entries": [], "version": "2.9"}', b"[1, 2]", b"[rank0]: traceEvents"])
def test_what_is_no_trace_is_not_taken_for_one(data: bytes) -> None:
    assert not looks_like_trace(data)


def test_control_characters_in_names_do_not_matter(tmp_path: Path) -> None:
    """pytorch#130622: the exporter writes them as they are."""
    text = some(50).text().replace("aten::mm", "aten::mm\x01\x1b\t")
    (tmp_path / "a.json").write_text(text)
    (one,) = diagnose([tmp_path]).inputs
    assert (one.kind, one.rank, one.problem) == ("trace", 3, "")
    assert len(read(text.encode())[0]) == 50


def test_a_broken_stretch_is_left_out_and_told() -> None:
    data = some(50).text().encode().replace(b'"ts": 20000.0', b'"ts": 20000.0, \\')
    events, trace = read(data)
    assert len(events) == 49
    assert "1 stretches" in trace.problem


@pytest.mark.parametrize("packed", [False, True])
def test_of_a_trace_that_breaks_off_the_whole_events_count(packed: bool, tmp_path: Path) -> None:
    data = some(3000).text().encode()
    data = gzip.compress(data)[:-300] if packed else data[: len(data) // 2]
    (tmp_path / "a.json").write_bytes(data)
    found = diagnose([tmp_path])
    assert (found.inputs[0].kind, found.inputs[0].rank) == ("trace", 3)
    assert any("a.json" in line for line in found.missing)
    (rank,) = read_inputs([tmp_path], TOPICS).of(Traces).ranks
    assert 1000 < sum(work.count for work in rank.work.values()) < 3000


def test_columns_agree_with_the_trace_that_is_read_whole(tmp_path: Path) -> None:
    made = Made()
    for n in range(40):
        made.kernel("gemm", 10 * n, 4.0)
        made.collective("allreduce", 10 * n + 2, 6.0, 4e6)
        made.span("user_annotation", "nccl:all_reduce", 10 * n, 9.0)  # the host's call
    made.save(tmp_path)
    whole = read_trace(tmp_path / "host_0.json")
    with (tmp_path / "host_0.json").open("rb") as file:
        rank = read_rank(file, "")
    assert rank.work["gemm"].seconds == pytest.approx(sum(span.seconds for span in whole.compute))
    assert sum(one.seconds for one in rank.collectives) == pytest.approx(sum(o.seconds for o in whole.collectives))
    assert rank.collectives[0].exposed == pytest.approx(4e-3)  # 2 of its 6 ms beside the kernel
    assert (rank.collectives[0].kind, rank.collectives[0].bytes) == ("all-reduce", 4e6)
    assert rank.launch_delay == pytest.approx(1e-5)


def test_a_collective_belongs_to_the_step_that_launched_it() -> None:
    """The device runs behind its host."""
    made = Made()
    for step in range(3):
        made.step(step, 10.0 * step, 10.0)
        made.kernel("gemm", 10.0 * step + 15, 1, launched=10.0 * step + 4)
        made.collective("allreduce", 10.0 * step + 17, 1, 4e6, launched=10.0 * step + 5)
    rank = read_rank(io.BytesIO(made.text().encode()), "")
    assert [one.step for one in rank.collectives] == [0, 1, 2]
    assert [one.busy.window for one in rank.steps] == pytest.approx([0.010, 0.010, 0.003])


HOSTILE: list[Any] = [
    3, None, [], {"ph": "X"}, {"ph": "X", "cat": "kernel", "name": 4, "ts": 1, "dur": 1},
    {"ph": "X", "cat": "kernel", "name": "k", "ts": float("nan"), "dur": 1},
    {"ph": "X", "cat": "kernel", "name": "k", "ts": 10**400, "dur": 1},
    {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": -5},
    {"ph": "X", "cat": "kernel", "name": "nccl", "ts": 1, "dur": 5, "args": [1]},
    {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "ts": "1", "dur": 5, "args": {
        "In msg nelems": "x", "dtype": 3, "Group size": -1, "correlation": 2**80}},
    {"ph": "X", "cat": "user_annotation", "name": "gloo:all_reduce", "ts": 1, "dur": 5,
     "args": {"Input Dims": [[-1, "x"], 3], "Input type": [None]}},
    {"ph": "X", "cat": ["kernel"], "name": "k", "ts": 1, "dur": 1},
    {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "ts": 1, "dur": 0},
]  # fmt: skip


def test_hostile_events_are_passed_over() -> None:
    columns = Columns()
    columns.add(HOSTILE)
    assert len(columns.start) == 4  # the kernels called like NCCL's, gloo's, and the step


@pytest.mark.parametrize("about", [{}, {"distributedInfo": 3}, {"distributedInfo": {"rank": "x", "pg_config": [3]}},
                                   {"distributedInfo": {"rank": -1, "world_size": 2**70}},
                                   {"baseTimeNanoseconds": "x", "deviceProperties": 3}])  # fmt: skip
def test_a_hostile_trace_is_read(about: dict[str, Any], tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text(json.dumps({"schemaVersion": 1, **about, "traceEvents": HOSTILE}))
    found = diagnose([tmp_path])
    assert [(one.kind, one.problem) for one in found.inputs] == [("trace", "")] * 2


def test_any_damage_to_a_trace_is_survived(tmp_path: Path) -> None:
    made = Made()
    made.step(1, 0, 100)
    made.kernel("gemm", 1, 4.0)
    made.collective("allreduce", 5, 6.0, 4e6)
    data, chance = made.text().encode(), random.Random(7)
    for n in range(200):
        damaged = bytearray(data)
        for _ in range(3):
            place = chance.randrange(len(damaged))
            damaged[place : place + chance.randrange(9)] = chance.choice((b"", b"\xff", b"{", b"]", b'"', b"9" * 30))
        (tmp_path / f"{n}.json").write_bytes(damaged)
    assert len(diagnose([tmp_path]).inputs) == 200
