"""`meshwright comms`: from the command line to a cluster that the other verbs price, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from meshwright.cli.frame import main

SMALL = ["comms", "--device", "cpu", "--ranks", "2", "--max-bytes", "64", "--iterations", "3"]
LOG = """+ ./all_reduce_perf -b 1M -e 2M -f 2 -g 4
# nThread 1 nGpus 4 minBytes 1048576 maxBytes 2097152 step: 2(factor) warmup iters: 5 iters: 20
#
# Using devices
{ranks}#
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    50.00   20.97   31.46      0    50.00   20.97   31.46      0
     2097152        524288     float     sum      -1    80.00   26.21   39.32      0    80.00   26.21   39.32      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 36.0
"""


def log(tmp_path: Path, name: str = "nccl.log", device: str = "NVIDIA H100 80GB HBM3") -> str:
    ranks = "".join(f"#  Rank {r:2d} Group 0 Pid 7 on n1 device {r:2d} [0x1a] {device}\n" for r in range(4))
    path = tmp_path / name
    path.write_text(LOG.format(ranks=ranks))
    return str(path)


def test_two_ranks_measure_and_write_a_cluster(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "here.toml"
    assert main([*SMALL, "--json", "--out", str(file)]) == 0
    out, _ = capfd.readouterr()
    read = json.loads(out)
    assert (read["machine"]["ranks"], read["machine"]["nodes"], read["machine"]["backend"]) == (2, 1, "gloo")
    assert {row["operation"] for row in read["rows"]} == {
        "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "send/recv",
    }  # fmt: skip
    assert all(row["seconds"] > 0 and row["iterations"] == 3 for row in read["rows"])
    assert [row["bytes"] for row in read["rows"] if row["operation"] == "all-reduce"] == [8, 16, 32, 64]
    (fit,) = read["fits"]
    assert (fit["tier"], fit["points"]) == ("intra", 5 * 4)
    assert read["file"] == str(file)

    work = ["--layout", "ddp2", "--seq-len", "8", "--global-batch", "2", "--precision", "fp32", "--json"]
    assert main(["estimate", "gpt2", "--cluster", str(file), *work]) in (0, 1)
    priced = json.loads(capfd.readouterr().out)
    assert priced["cluster"]["name"] == read["cluster"]
    before = file.read_bytes()
    assert main([*SMALL, "--out", str(file)]) == 2
    assert "exists" in capfd.readouterr().err
    assert file.read_bytes() == before


def test_the_axes_of_a_layout_are_told_to_people(capfd: pytest.CaptureFixture[str]) -> None:
    line = ["comms", "--device", "cpu", "--layout", "tp2 ddp2", "--op", "all-gather,send/recv", "--max-bytes", "8"]
    assert main([*line, "--iterations", "3"]) == 0
    out, _ = capfd.readouterr()
    assert "all-gather, tensor: 2 ranks on 1 node (intra), 2 groups at once" in out
    assert "send/recv, replicate: 2 ranks on 1 node (intra), 2 groups at once" in out
    assert "inside a node: α" in out
    assert "median" in out


def test_output_of_nccl_tests_counts_as_measured(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "h100.toml"
    assert main(["comms", "--read", log(tmp_path), "--out", str(file), "--json"]) == 0
    read = json.loads(capsys.readouterr().out)
    assert read["cluster"] == "4xH100, measured"
    assert [row["bus_bytes_per_s"] for row in read["rows"]] == pytest.approx([31.46e9, 39.32e9], rel=1e-3)
    # 2·3/4 · 1 MiB takes 30 us more: 52.4 GB/s; what is left of 50 us are six hops.
    (fit,) = read["fits"]
    assert fit["bytes_per_s"] == pytest.approx(1.5 * 2**20 / 30e-6, rel=1e-3)
    assert fit["latency_s"] == pytest.approx(20e-6 / 6, rel=1e-2)
    assert main(["plan", "llama-2-7b", "--cluster", str(file), "--json"]) in (0, 1)
    assert json.loads(capsys.readouterr().out)["cluster"]["name"] == "4xH100, measured"


def test_a_device_that_a_log_does_not_know_can_be_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    unknown = log(tmp_path, device="Some New GPU")
    file = str(tmp_path / "new.toml")
    assert main(["comms", "--read", unknown, "--out", file]) == 2
    assert "no device 'Some New GPU'" in capsys.readouterr().err
    assert main(["comms", "--read", unknown, "--out", file, "--device-name", "B200", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cluster"] == "4xB200, measured"


def refused(capsys: pytest.CaptureFixture[str], line: list[str]) -> str:
    assert main(["comms", *line]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    return err


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (["--op", "all-gahter"], "there is no operation 'all-gahter'. Legal: all-reduce, all-gather"),
        (["--op", ","], "--op names no operation"),
        (["--min-bytes", "1KB", "--max-bytes", "8"], "--max-bytes 8 is less than --min-bytes 1KB"),
        (["--max-bytes", "many"], "--max-bytes: 'many' is not a size"),
        (["--min-bytes", "0"], "--min-bytes is '0'"),
        (["--layout", "tp2 ddp", "--ranks", "2"], "ddp"),
        (["--layout", "tp2 ddp2", "--ranks", "2"], "needs 4 ranks, --ranks is 2. Legal: --ranks 4"),
        (["--ranks", "1"], "One rank has nobody to send to"),
        (["--ranks", "0"], "--ranks"),
        (["--device", "tpu"], "--device is 'tpu'. Legal: auto, cuda, cpu"),
        (["--backend", "mpi"], "--backend is 'mpi'. Legal: auto, nccl, gloo"),
        (["--implementation", "fast"], "--implementation is 'fast'"),
        (["--tier", "intra"], "goes with --read"),
        (["some.log"], "meshwright comms --read some.log"),
        (["--read"], "--read needs the files"),
        (["--read", "none.log"], "Cannot read none.log"),
        (["--read", "none.log", "--compute"], "does not go with --read"),
        (["--out", "/no/such/folder/c.toml"], "there is no folder"),
    ],
)
def test_a_wrong_request_is_told_in_a_line(capsys: pytest.CaptureFixture[str], line: list[str], told: str) -> None:
    assert told in refused(capsys, line)


def test_a_broken_file_is_told_in_a_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "broken.log"
    for content in (b"", b"\xff\xfe\x00", b"{", b"# nThread 1\nnothing\n"):
        path.write_bytes(content)
        told = refused(capsys, ["--read", str(path)])
        assert str(path) in told
        assert told.count("\n") == 1


def test_files_of_different_devices_are_not_one_machine(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    both = [log(tmp_path, "a.log"), log(tmp_path, "b.log", "NVIDIA A100-SXM4-80GB")]
    assert "different devices" in refused(capsys, ["--read", *both])


def test_wrong_data_is_exit_code_1(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A sitecustomize in the ranks adds one to what rank 1 receives."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys, importlib.abc\n"
        "class Spy(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'meshwright.bench.comms.measure':\n"
        "            sys.meta_path.remove(self)\n"
        "            from meshwright.bench.comms import messages\n"
        "            run = messages._RUN['all-gather']\n"
        "            def wrong(message):\n"
        "                run(message)\n"
        "                if os.environ.get('RANK') == '1':\n"
        "                    message.received[0] += 1\n"
        "            messages._RUN['all-gather'] = wrong\n"
        "sys.meta_path.insert(0, Spy())\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert main([*SMALL, "--op", "all-gather", "--out", str(tmp_path / "c.toml")]) == 1
    _, err = capfd.readouterr()
    assert "WrongDataError: rank 1: all-gather of 8 bytes gave" in err
    assert not (tmp_path / "c.toml").exists()


def keys(value: Any) -> set[str]:
    return set(value)


def test_the_document_has_the_promised_keys(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["comms", "--read", log(tmp_path), "--json"]) == 0
    read = json.loads(capsys.readouterr().out)
    assert keys(read) == {"machine", "rows", "fits", "cluster", "file"}
    assert keys(read["rows"][0]) == set(
        "axis ranks groups nodes tier operation bytes iterations seconds p99_seconds algorithm_bytes_per_s "
        "bus_bytes_per_s fitted_seconds note".split()
    )
    assert keys(read["fits"][0]) == set(
        "tier latency_s bytes_per_s bandwidth_seen overhead_s points median_error worst_error worst "
        "operation_errors".split()
    )


def test_reading_files_does_without_torch(tmp_path: Path) -> None:
    line = ["comms", "--read", log(tmp_path), "--out", str(tmp_path / "c.toml")]
    code = (
        "import sys; from meshwright.cli.frame import main; code = main(sys.argv[1:]); "
        "sys.exit(code or 3 * ('torch' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code, *line], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
