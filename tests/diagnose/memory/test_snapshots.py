"""Memory snapshots, in the format of torch/cuda/memory.py `_snapshot`, written here by hand."""

from __future__ import annotations

import contextlib
import pickle
from pathlib import Path
from typing import Any

import pytest

from meshwright.diagnose.diagnosis import Diagnosis, diagnose
from meshwright.diagnose.finding import CERTAIN, INFO, LIKELY, POSSIBLE, Finding
from meshwright.spec.errors import RequestError

MIB = 2**20


def frame(name: str, file: str = "train.py", line: int = 10) -> dict[str, Any]:
    return {"filename": file, "line": line, "name": name}


def block(mib: int, state: str = "inactive", *frames: dict[str, Any]) -> dict[str, Any]:
    return {"size": mib * MIB, "requested_size": mib * MIB, "address": 0, "state": state, "frames": list(frames)}


def segment(*blocks: dict[str, Any], device: int = 0) -> dict[str, Any]:
    active = sum(one["size"] for one in blocks if one["state"] != "inactive")
    return {
        "device": device, "address": 1 << 40, "total_size": sum(one["size"] for one in blocks), "stream": 0,
        "segment_type": "large", "segment_pool_id": (0, 0), "allocated_size": active, "active_size": active,
        "blocks": list(blocks),
    }  # fmt: skip


def event(action: str, mib: float, address: int = 0, **more: Any) -> dict[str, Any]:
    named = {"addr": address} if action != "oom" else {"device_free": 0}
    return {"action": action, "size": int(mib * MIB), "stream": 0, "frames": []} | named | more


def snapshot(segments: list[dict[str, Any]], *trace: dict[str, Any]) -> dict[str, Any]:
    return {"segments": segments, "device_traces": [list(trace)], "allocator_settings": {"expandable_segments": False}}


def said(folder: Path, parsed: Any, protocol: int = 4) -> Diagnosis:
    path = folder / "snapshot.pickle"
    path.write_bytes(pickle.dumps(parsed, protocol))
    return diagnose([path])


def only(found: Diagnosis) -> Finding:
    assert len(found.findings) == 1, found.findings
    return found.findings[0]


def in_pieces() -> list[dict[str, Any]]:
    """400 MiB free in pieces of at most 150 MiB, as in pytorch#35901."""
    live = block(10, "active_allocated", frame("forward", "model.py", 7))
    return [segment(block(150), live, block(100)), segment(live, block(150))]


@pytest.mark.parametrize("protocol", range(6))
def test_pieces_that_sum_to_the_request_but_none_of_which_holds_it_are_fragmentation(
    tmp_path: Path, protocol: int
) -> None:
    found = said(tmp_path, snapshot(in_pieces(), event("oom", 200)), protocol)
    assert found.inputs[0].kind == "memory snapshot"
    assert (only(found).category, only(found).confidence) == ("fragmentation", CERTAIN)
    assert "150 MiB" in only(found).cause


def test_neighbouring_free_blocks_are_one(tmp_path: Path) -> None:
    pieces = [segment(block(150), block(100), block(10, "active_allocated"))]  # 250 MiB in one run hold 200
    assert only(said(tmp_path, snapshot(pieces, event("oom", 200)))).category == "oom_capacity"
    assert only(said(tmp_path, snapshot(pieces, event("oom", 200)))).confidence == POSSIBLE


def test_what_changed_since_the_failure_makes_it_likely_only(tmp_path: Path) -> None:
    since = event("free_completed", 5, 99)
    assert only(said(tmp_path, snapshot(in_pieces(), event("oom", 200), since))).confidence == LIKELY


def test_a_device_that_is_full_names_its_largest_allocation_sites(tmp_path: Path) -> None:
    torch_frame = frame("empty", "/usr/lib/python3/site-packages/torch/nn/init.py")
    full = [
        segment(block(700, "active_allocated", torch_frame, frame("mlp", "model.py", 31)), block(20)),
        segment(block(200, "active_allocated", frame("attention", "model.py", 12))),
    ]
    found = only(said(tmp_path, snapshot(full, event("oom", 500, frames=[frame("mlp", "model.py", 31)]))))
    assert (found.category, found.confidence) == ("oom_capacity", CERTAIN)
    assert found.cause.index("700 MiB at model.py:31 mlp") < found.cause.index("200 MiB at model.py:12 attention")
    assert any("allocator settings" in change for change in found.change)


@pytest.mark.parametrize(
    ("frames", "category"),
    [
        ([frame("cross_entropy", "torch/nn/functional.py"), frame("loss")], "oom_logits"),
        ([frame("lm_head", "model.py"), frame("forward")], "oom_logits"),
        ([frame("_full_state_dict_hook", "torch/distributed/fsdp/x.py"), frame("save_checkpoint")], "oom_checkpoint"),
    ],
)
def test_the_frames_of_the_failed_request_say_what_it_was_for(
    tmp_path: Path, frames: list[dict[str, Any]], category: str
) -> None:
    full = [segment(block(700, "active_allocated"))]
    assert only(said(tmp_path, snapshot(full, event("oom", 500, frames=frames)))).category == category


def test_a_healthy_snapshot_without_a_failure_says_nothing_above_info(tmp_path: Path) -> None:
    # Between steps activations are free and share segments with what lives on.
    between = [segment(block(100, "active_allocated"), block(300)), segment(block(500, "active_allocated"))]
    found = said(tmp_path, snapshot(between, event("alloc", 100, 1)))
    assert {one.severity for one in found.findings} <= {INFO}


def steps(leak: int, name: str = "append", reserve: int = 0) -> list[dict[str, Any]]:
    """60 steps of ten temporary tensors; each step keeps `leak` MiB and adds `reserve` MiB to the reserve."""
    trace, address = [], 1
    for _ in range(60):
        for _ in range(10):
            trace += [event("alloc", 50, address), event("free_completed", 50, address)]
            address += 1
        if leak:
            trace.append(event("alloc", leak, address, frames=[frame(name)]))
            address += 1
        if reserve:
            trace.append(event("segment_alloc", reserve, address))
    return trace


def test_a_baseline_that_rises_is_named_with_the_site_that_is_not_freed(tmp_path: Path) -> None:
    # Of 60 steps x 4 MiB, those after 3 of 10 windows: 42 steps, 168 MiB, less the rise within the first of them.
    found = only(said(tmp_path, snapshot([], *steps(leak=4))))
    assert (found.category, found.confidence) == ("oom_capacity", POSSIBLE)
    assert "at train.py:10 append" in found.cause
    assert only(said(tmp_path, snapshot([], *steps(4, "save_checkpoint")))).category == "oom_checkpoint"


def test_a_reserve_that_grows_while_active_memory_is_flat_is_fragmentation(tmp_path: Path) -> None:
    assert only(said(tmp_path, snapshot([], *steps(leak=0, reserve=3)))).category == "fragmentation"


def test_a_flat_history_is_healthy(tmp_path: Path) -> None:
    assert said(tmp_path, snapshot([], *steps(leak=0))).findings == ()


def test_segments_that_somebody_printed_are_read_from_the_line(tmp_path: Path) -> None:
    # pytorch#35901: 0.5 GB of small live blocks hold an 11.6 GB segment; the listing is cut.
    line = (
        "{'active_size': 499214336, 'allocated_size': 499214336, 'segment_type': 'large', 'total_size': 11643387904, "
        "'blocks': [{'size': 16515072, 'state': 'active_allocated'}, {'size': 18191360, 'state': 'inactive'}, ...]}"
    )
    path = tmp_path / "issue.txt"
    path.write_text(line + "\n")
    found = diagnose([path]).findings[0]
    assert (found.category, found.confidence) == ("fragmentation", POSSIBLE)
    assert "10.38 GiB of 10.84 GiB" in found.cause  # (11643387904 - 499214336) / 2**30 = 10.38, / 2**30 = 10.84


def test_the_rank_of_a_snapshot_is_its_files(tmp_path: Path) -> None:
    path = tmp_path / "memory_snapshot_rank3.pickle"
    path.write_bytes(pickle.dumps(snapshot(in_pieces(), event("oom", 200))))
    assert only(diagnose([path])).ranks == (3,)


@pytest.mark.parametrize("devices", [0, 3])
def test_every_device_is_judged(tmp_path: Path, devices: int) -> None:
    segments = [segment(block(700, "active_allocated"), device=device) for device in range(devices)]
    parsed = {"segments": segments, "device_traces": [[event("oom", 500)] for _ in range(devices)]}
    if not devices:
        with pytest.raises(RequestError, match="without segments"):
            said(tmp_path, parsed)
    else:
        assert len(said(tmp_path, parsed).findings[0].evidence) + len(said(tmp_path, parsed).findings) > 1
        assert sum(len(one.evidence) for one in said(tmp_path, parsed).findings) == devices


@pytest.mark.parametrize(
    "parsed",
    [
        {"segments": "x", "device_traces": {"a": 1}},
        {
            "segments": [{"total_size": -5, "blocks": []}, {"total_size": True, "blocks": 3}],
            "device_traces": [None, [3]],
        },
        {"segments": [{"total_size": 2**200, "blocks": []}], "device_traces": [[{"action": 3, "size": "a"}]]},
        {
            "segments": [{"total_size": 10, "blocks": [None, {"size": float("nan")}], "device": "x"}],
            "device_traces": [],
        },
        [{"total_size": 10, "blocks": [{"size": 3, "state": 7, "frames": [1, {"name": None}]}]}],
        {"device_traces": [[{"action": "oom", "size": 5, "frames": "x", "device_free": -1}]]},
    ],
)
def test_hostile_contents_are_skipped_or_refused_and_never_crash(tmp_path: Path, parsed: Any) -> None:
    with contextlib.suppress(RequestError):
        said(tmp_path, parsed)


def test_a_truncated_snapshot_and_one_with_code_in_it_are_refused_with_a_sentence(tmp_path: Path) -> None:
    data = pickle.dumps(snapshot(in_pieces(), event("oom", 200)), 4)
    (tmp_path / "cut.pickle").write_bytes(data[: len(data) // 2])
    (tmp_path / "code.pickle").write_bytes(b"cposix\nsystem\n(S'true'\ntR.")
    (tmp_path / "whole.pickle").write_bytes(data)
    found = diagnose([tmp_path])
    assert [bool(one.problem) for one in found.inputs] == [True, True, False]
    assert len(found.findings) == 1
