"""Whatever a cluster left, nothing crashes: damaged, cut, binary, hostile, or in another encoding."""

from __future__ import annotations

import gzip
import json
import pickle
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from meshwright.diagnose.diagnosis import Diagnosis, diagnose
from meshwright.spec.errors import RequestError

SHARED = Path(__file__).parents[3] / "shared" / "data" / "diagnosis"
ROUNDS = 25
ENTRY = {
    "process_group": ["0", "default_pg"], "collective_seq_id": 7, "p2p_seq_id": 0, "state": "scheduled",
    "profiling_name": "nccl:all_reduce", "input_sizes": [[8]], "output_sizes": [[8]], "input_dtypes": ["Float"],
    "time_created_ns": 5, "frames": [{"filename": "/job/train.py", "line": 41, "name": "step"}],
}  # fmt: skip
EVENTS = [
    {"ph": "X", "cat": cat, "name": name, "ts": 100 * i, "dur": 50, "pid": 0, "tid": 7, "args": {"correlation": i}}
    for i, (cat, name) in enumerate([("cpu_op", "aten::mm"), ("kernel", "ncclKernel_AllReduce"), ("kernel", "gemm")])
]
BLOCK = {"size": 512, "requested_size": 500, "address": 1, "state": "inactive", "frames": []}
LOG = """[rank3]:[E1103 10:00:00.375750231 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation \
timeout: \
WorkNCCL(SeqNum=313, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600010 milliseconds
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 5 has a total capacity of 23.43 GiB of \
which 210.06 MiB is free. Of the allocated memory 22.41 GiB is allocated by PyTorch, and 206.09 MiB is reserved.
[titan] 2025-08-21 21:45:16,254 - root - INFO - step:  3  loss: 10.7764  grad_norm: 14.0547  memory: 72.32GiB(91.44%)
 iteration       10/     100 | elapsed time per iteration (ms): 812.3 | lm loss: 9.2E+00 | grad norm: 1.2 |
AssertionError: Check batch related parameters. 256 != 2 * 18 * 7
h:1:2 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [send] via NET/IB/0
[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 64, reducing to 32
torchrun --nproc-per-node 8 train.py --tensor-model-parallel-size 3 --num-attention-heads 32
|    0     62250      C   /usr/bin/python3.6                          4903MiB |
Comm. Op            Message Size        Count               Total Latency(ms)   Avg Latency(ms)     tput_avg (Gbps)
"""
SAMPLES: dict[str, bytes] = {
    "dump": pickle.dumps({"version": "2.9", "pg_config": {}, "entries": [ENTRY]}),
    "dump.json": json.dumps({"version": "2.9", "pg_config": {}, "entries": [ENTRY]}).encode(),
    "trace.json": json.dumps({"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": EVENTS}).encode(),
    "snapshot": pickle.dumps({"segments": [{"total_size": 9, "blocks": [BLOCK]}], "device_traces": [[]]}, protocol=0),
    "config.json": json.dumps({"train_batch_size": 256, "zero_optimization": {"stage": 3}, "vocab_size": 9}).encode(),
    "metrics.jsonl": b'{"step": 1, "loss": 2.5}\n{"step": 2, "loss": NaN}\n',
    "job.log": LOG.encode(),
    "config.toml": b"[model]\nname = 'x'\n",
    "accelerate.yaml": b"compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_processes: 8\n",
}
NUMBERS = (b"-1", b"NaN", b"1e400", b"99999999999999999999999999", b"null", b"{}", b'"x"', b"0", b"[[[[")


def damaged(data: bytes, dice: random.Random) -> Iterator[bytes]:
    """The same file cut, with bytes changed, with other numbers, and in other encodings."""
    for _ in range(ROUNDS):
        at = dice.randrange(len(data))
        yield data[:at]
        yield data[:at] + bytes([dice.randrange(256)]) + data[at + 1 :]
        yield data[:at] + dice.choice(NUMBERS) + data[at + dice.randrange(4) :]
        yield data[:at] + data[at // 2 :]
    yield data.decode("latin-1").encode("utf-16")
    yield b"\xef\xbb\xbf" + data
    yield gzip.compress(data)[:-9]
    yield data.replace(b"\n", b"\r")
    yield data.replace(b" ", b"\0")


def outcome(folder: Path) -> Diagnosis | str:
    try:
        return diagnose([folder])
    except RequestError as error:
        return str(error)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_damaged_file_is_read_or_told_in_one_sentence(name: str, tmp_path: Path) -> None:
    for at, data in enumerate(damaged(SAMPLES[name], random.Random(name))):
        file = tmp_path / f"rank_{at % 3}"
        file.write_bytes(data)
        found = outcome(tmp_path)
        told = found if isinstance(found, str) else "".join(one.problem for one in found.inputs)
        assert "Traceback" not in told
        assert "\n" not in told.strip()


@pytest.mark.parametrize("folder", ["flight_recorder/lock_gil_1st", "nccl_tests", "traces"])
def test_a_damaged_file_of_a_real_job_is_read_or_told(folder: str, tmp_path: Path) -> None:
    files = sorted((SHARED / folder).glob("*"), key=lambda file: file.stat().st_size)[:6]
    if not files:
        pytest.skip("the files are not beside this checkout")
    dice = random.Random(folder)
    for file in files:
        data = file.read_bytes()
        for cut in [data[: dice.randrange(len(data))], *list(damaged(data, dice))[:8]]:
            (tmp_path / file.name).write_bytes(cut)
            assert outcome(tmp_path) is not None


@pytest.mark.parametrize(
    "make",
    [
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(random.Random(0).randbytes(100_000)),
        lambda file: file.write_bytes(b"x" * 5_000_000),  # one line without an end
        lambda file: file.write_bytes(b"[" * 100_000),
        lambda file: file.write_bytes(b'{"a":' * 50_000),
        lambda file: file.write_bytes(b"\n" * 1_000_000),
        lambda file: file.symlink_to("absent"),
        lambda file: file.mkdir(),
    ],
    ids=["empty", "noise", "one-line", "brackets", "braces", "newlines", "dangling-link", "folder"],
)
def test_strange_files_are_listed(make: Callable[[Path], object], tmp_path: Path) -> None:
    make(tmp_path / "thing")
    found = outcome(tmp_path)
    assert isinstance(found, str)
    assert found.startswith("Nothing here can be read")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_no_pickle_of_any_protocol_runs_anything(protocol: int, tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (tmp_path / "ran",))

    (tmp_path / "rank_0").write_bytes(pickle.dumps({"entries": [Hostile()], "version": "2"}, protocol=protocol))
    outcome(tmp_path)
    assert not (tmp_path / "ran").exists()
