"""The memory figure is this process's own, and says what it is."""

from __future__ import annotations

import subprocess
import sys

import torch

from meshwright.train.metrics.usage import HOST, host_peak, peak_memory

MIB = 2**20


def test_the_peak_of_a_cpu_rank_grows_with_what_it_touches_and_stays() -> None:
    before = host_peak()
    block = bytearray(before_size := 200 * MIB)
    block[::4096] = b"x" * len(block[::4096])
    del block
    peak, kind = peak_memory(torch.device("cpu"))
    assert kind == HOST
    assert peak >= before
    assert peak > before_size


def test_a_small_process_of_a_large_one_is_small() -> None:
    # getrusage would give the child its parent's peak (this process has torch in it).
    code = "from meshwright.train.metrics.usage import host_peak; print(host_peak())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 100 * MIB < host_peak()
