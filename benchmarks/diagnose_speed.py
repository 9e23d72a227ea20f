"""How fast `meshwright diagnose` starts, and how long it takes over 512 ranks' dumps, beside the goals.

    python benchmarks/diagnose_speed.py [--ranks 512] [--entries 200]

The dumps are made in a temporary folder: an all-reduce in which one rank is missing. Each figure is the best of three
processes, with their imports. Traces have their own benchmark, `trace_speed.py`.
"""

from __future__ import annotations

import argparse
import io
import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path

START_GOAL, DUMPS_GOAL = 0.5, 5.0
LAGGARD = 7
"""The rank that did not enter the last collective."""
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
        of_most, of_one = dump(asked.ranks, asked.entries, "started"), dump(asked.ranks, asked.entries - 1, "completed")
        for rank in range(asked.ranks):
            (dumps / f"rank_{rank}").write_bytes(of_one if rank == LAGGARD else of_most)
        print(
            f"dumps  {best(dumps):.2f} s of {asked.ranks} ranks with {asked.entries:,} entries  goal {DUMPS_GOAL:g} s"
        )


class _Pickler(pickle._Pickler):  # type: ignore[name-defined, misc]
    """Writes as PyTorch does: a text, or a line of the program, is written once, lists and entries are not numbered."""

    def memoize(self, obj: object) -> None:
        """Remembers what is written once."""
        if isinstance(obj, str) or any(obj is frame for frame in FRAMES):
            super().memoize(obj)


def dump(ranks: int, entries: int, last: str) -> bytes:
    """One rank's, with the keys of PyTorch 2.12."""
    listed = [
        {
            "frames": list(FRAMES), "record_id": at, "pg_id": 0, "process_group": ("0", "default_pg"),
            "thread_name": "pt_autograd_0", "thread_id": "139977044384640", "collective_seq_id": at, "p2p_seq_id": 0,
            "op_id": at, "profiling_name": "nccl:all_reduce", "time_created_ns": 10**18 + 1000 * at,
            "duration_ms": 1.5, "input_sizes": [[1024, 1024]], "input_dtypes": ["BFloat16"],
            "output_sizes": [[1024, 1024]], "output_dtypes": ["BFloat16"],
            "state": "completed" if at < entries - 1 else last, "time_discovered_started_ns": None,
            "time_discovered_completed_ns": None, "retired": at < entries - 1, "timeout_ms": 600000, "is_p2p": False,
        }
        for at in range(entries)
    ]  # fmt: skip
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(ranks)))}}
    written = io.BytesIO()
    _Pickler(written, protocol=2).dump({"version": "2.10", "pg_config": groups, "entries": listed})
    return written.getvalue()


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
