"""How fast `meshwright diagnose` starts, and how long it takes over 512 ranks' dumps, beside the goals.

    python benchmarks/diagnose_speed.py [--ranks 512] [--entries 200]

The dumps are made in a temporary folder: an all-reduce in which one rank is missing. Each figure is the best of three
processes, with their imports. Traces have their own benchmark, `trace_speed.py`.
"""

from __future__ import annotations

import argparse
import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path

START_GOAL, DUMPS_GOAL = 0.5, 5.0
FRAMES = [{"filename": "/job/train.py", "line": 41 + at, "name": "step"} for at in range(6)]


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--ranks", type=int, default=512)
    parser.add_argument(
        "--entries", type=int, default=200, help="of each rank's ring buffer; PyTorch's default is 2,000"
    )
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        log = Path(name, "job.log")
        log.write_text("2025-01-01 00:00:00 INFO step 1 loss 2.0\n")
        print(f"start  {best(log):.2f} s  goal {START_GOAL:g} s")
        dumps = Path(name, "dumps")
        dumps.mkdir()
        for rank in range(asked.ranks):
            (dumps / f"rank_{rank}").write_bytes(dump(rank, asked.ranks, asked.entries))
        print(
            f"dumps  {best(dumps):.2f} s of {asked.ranks} ranks with {asked.entries:,} entries  goal {DUMPS_GOAL:g} s"
        )


def dump(rank: int, ranks: int, entries: int) -> bytes:
    """One rank's; rank 7 did not enter the last collective."""
    listed = [
        {
            "process_group": ("0", "default_pg"), "collective_seq_id": at, "p2p_seq_id": 0, "record_id": at,
            "profiling_name": "nccl:all_reduce", "state": "completed" if at < entries - 1 else "started",
            "input_sizes": [[1024, 1024]], "output_sizes": [[1024, 1024]], "input_dtypes": ["BFloat16"],
            "time_created_ns": 1000 * at + rank, "frames": [dict(frame) for frame in FRAMES],
        }
        for at in range(entries - (rank == 7))
    ]  # fmt: skip
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(ranks)))}}
    return pickle.dumps({"version": "2.9", "pg_config": groups, "entries": listed})


def best(path: Path) -> float:
    """Seconds of one diagnosis, the best of three."""
    found = []
    for _ in range(3):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-m", "meshwright", "diagnose", "--json", str(path)], stdout=subprocess.DEVNULL)
        found.append(time.perf_counter() - begin)
    return min(found)


if __name__ == "__main__":
    main()
