"""Where a traced rank's time goes, on a trace made by hand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from meshwright.diagnose.traces.activity import busy, phases, sent
from meshwright.diagnose.traces.events import TraceError, read_trace, trace_of


def event(kind: str, name: str, start_ms: float, end_ms: float, thread: int = 1, **arguments: Any) -> dict[str, Any]:
    return {
        "ph": "X", "cat": kind, "name": name, "pid": 7, "tid": thread,
        "ts": start_ms * 1e3, "dur": (end_ms - start_ms) * 1e3, "args": arguments,
    }  # fmt: skip


CPU = {
    "distributedInfo": {"rank": 1, "world_size": 2, "pg_config": [{"pg_name": "3", "pg_desc": "data"}]},
    "baseTimeNanoseconds": 5_000_000_000,
    "traceEvents": [
        event("user_annotation", "meshwright:step", 0, 100),
        event("user_annotation", "meshwright:forward stage 1 micro-batch 2", 0, 40),
        event("cpu_op", "aten::mm", 0, 30),
        event("cpu_op", "aten::t", 5, 10),  # inside the other
        event("cpu_op", "autograd::engine::evaluate_function: Wait", 30, 60),  # wraps, and waits
        # Two calls; gloo begins each some time later, on a thread of its own.
        event("user_annotation", "meshwright:collective data all-reduce 4096", 8, 9),
        event("user_annotation", "meshwright:collective shard reduce-scatter 512", 9, 10),
        event("user_annotation", "gloo:all_reduce", 20, 50, thread=2),
        event("user_annotation", "gloo:all_reduce", 60, 70, thread=2),
        event("cpu_op", "aten::add_", 65, 80),
    ],
}


def test_exposed_communication_is_what_no_operator_runs_beside() -> None:
    found = busy(trace_of(CPU), 0.0, 0.1)
    assert found.compute == pytest.approx(0.045)  # 0-30, 65-80
    assert found.communication == pytest.approx(0.040)  # 20-50, 60-70
    assert found.overlapped == pytest.approx(0.015)  # 20-30, 65-70
    assert found.exposed == pytest.approx(0.025)
    assert found.idle == pytest.approx(0.030)
    assert found.compute + found.exposed + found.idle == pytest.approx(found.window)


def test_gloos_spans_belong_to_the_calls_in_their_order() -> None:
    first, second = sent(trace_of(CPU), 0.0, 0.1)
    assert (first.axis, first.collective, first.count) == ("data", "all-reduce", 1)
    assert first.seconds == pytest.approx(0.030)
    assert first.exposed == pytest.approx(0.020)
    # Gloo has no reduce-scatter of its own: it sums everywhere.
    assert (second.axis, second.collective) == ("shard", "reduce-scatter")
    assert second.exposed == pytest.approx(0.005)


def test_ranges_tell_phase_stage_and_micro_batch() -> None:
    step, forward = phases(trace_of(CPU))
    assert (step.phase, step.stage, step.micro_batch) == ("step", None, None)
    assert (forward.phase, forward.stage, forward.micro_batch) == ("forward", 1, 2)


def test_on_a_gpu_kernels_count_and_nccls_are_collectives() -> None:
    gpu = {
        "traceEvents": [
            event("cpu_op", "aten::mm", 0, 90),  # the host's time is none of the device's
            event("user_annotation", "meshwright:step", 0, 9),
            event("user_annotation", "meshwright:backward micro-batch 0", 4, 8),
            event("gpu_user_annotation", "meshwright:backward micro-batch 0", 12, 13),  # of the range's thread alone
            event("cuda_runtime", "cudaLaunchKernel", 1, 2, correlation=11),
            event("cuda_runtime", "cudaLaunchKernel", 5, 6, thread=9, correlation=12),  # by autograd's thread
            event("kernel", "sm90_gemm", 10, 40, thread=7, correlation=11),
            event(
                "kernel", "ncclDevKernel_AllGather_RING_LL(x)", 30, 60, thread=3, correlation=12,
                **{"Collective name": "_allgather_base", "Process Group Description": "shard"},
            ),
        ]
    }  # fmt: skip
    found = busy(trace_of(gpu), 0.0, 0.06)
    assert (found.compute, found.communication) == (pytest.approx(0.03), pytest.approx(0.03))
    assert found.overlapped == pytest.approx(0.01)
    (line,) = sent(trace_of(gpu), 0.0, 0.06)
    assert (line.axis, line.collective) == ("shard", "all-gather")
    assert [(one.phase, round(one.start * 1e3), round(one.end * 1e3)) for one in phases(trace_of(gpu))] == [
        ("step", 10, 60),
        ("backward", 30, 60),
    ]


def test_a_trace_is_read_plain_and_packed(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.json", tmp_path / "b.json.gz"
    plain.write_text(json.dumps(CPU))
    packed.write_bytes(gzip.compress(json.dumps(CPU).encode()))
    assert read_trace(plain) == read_trace(packed)
    assert read_trace(plain).rank == 1
    assert read_trace(plain).base_seconds == 5.0


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"traceEvents": 3}', b"\x1f\x8bno gzip", b"\xff\xfe"])
def test_what_is_no_trace_is_refused_by_name(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=r"broken\.json"):
        read_trace(path)
