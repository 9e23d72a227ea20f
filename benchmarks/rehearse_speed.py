"""How long a rehearsal takes, and how much memory, beside the goals.

    python benchmarks/rehearse_speed.py

Each job is a process of its own: seconds from its start to its end, and the most memory that it held.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

JOBS = (
    ("Llama-3-8B, fsdp8, 2 steps", ("llama-3.1-8b", "8xH100", "fsdp8", "8192", "8"), 20, 3),
    (
        "Llama-3.1-405B, 16,384 ranks",
        ("llama-3.1-405b", "2048x8xH100", "hsdp2x8 tp8 cp8 pp16:1f1b ac:full", "8192", "256"), 90, 4,
    ),
    (
        "DeepSeek-V3, 2,048 ranks, EP",
        ("deepseek-v3", "256x8xH100", "fsdp128 pp16:1f1b ep64 ac:full", "4096", "8192"), 90, 4,
    ),
)  # fmt: skip
START_GOAL = 4.0
GIB = 2.0**30


def run(*arguments: str) -> tuple[float, float, int]:
    """Seconds, GiB and exit code of one command of Python."""
    begin = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    scale = 1.0 if sys.platform == "darwin" else 1024.0
    return time.perf_counter() - begin, usage.ru_maxrss * scale / GIB, process.returncode


def main() -> None:
    print("| job | seconds | goal | GiB | goal | exit code |\n| --- | ---: | ---: | ---: | ---: | ---: |")
    seconds, size, code = run("-c", "from meshwright.rehearse.session import import_all; import_all()")
    print(f"| imports, before anything is traced | {seconds:.1f} | {START_GOAL:g} | {size:.2f} | | {code} |")
    for name, (model, cluster, layout, seq_len, batch), most_seconds, most_gib in JOBS:
        seconds, size, code = run(
            "-m", "meshwright", "rehearse", model, "--cluster", cluster, "--layout", layout, "--seq-len", seq_len,
            "--global-batch", batch,
        )  # fmt: skip
        print(f"| {name} | {seconds:.1f} | {most_seconds} | {size:.2f} | {most_gib} | {code} |")


if __name__ == "__main__":
    main()
