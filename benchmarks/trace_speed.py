"""A gigabyte of Kineto traces beside its goals: seconds to diagnose on one core, and the memory that it takes.

    python benchmarks/trace_speed.py [--trace FILE.json.gz] [--megabytes 1000] [--packed]

The trace is a real one, repeated: each repetition is later, with steps and launches of its own. It is written to a
temporary folder. The diagnosis is a process of its own with its imports.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
TRACE = ROOT.parent / "shared" / "data" / "diagnosis" / "traces" / "trace_diff_control_control.json.gz"
SECONDS_GOAL, MEMORY_GOAL = 60.0, 1024.0
DIAGNOSE = (sys.executable, "-m", "meshwright", "diagnose", "--json")


def main() -> int:
    """Print the figures; exit code 1 when one is missed."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--trace", type=Path, default=TRACE)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--packed", action="store_true", help="as .json.gz")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / ("rank0.json.gz" if asked.packed else "rank0.json")
        megabytes = repeated(asked.trace, path, asked.megabytes * 10**6) / 1e6
        seconds, memory = measured(path)
    scaled = seconds * 1000 / megabytes
    print(f"read   {megabytes:.0f} MB in {seconds:.1f} s, {megabytes / seconds:.0f} MB/s")
    print(f"time   {scaled:.1f} s a gigabyte  goal {SECONDS_GOAL:g} s{_missed(scaled, SECONDS_GOAL)}")
    print(f"memory {memory:.0f} MiB  goal {MEMORY_GOAL:g} MiB{_missed(memory, MEMORY_GOAL)}")
    return int(scaled > SECONDS_GOAL or memory > MEMORY_GOAL)


def _missed(reached: float, goal: float) -> str:
    return "" if reached <= goal else "  MISSED"


def repeated(trace: Path, path: Path, size: int) -> int:
    """Writes a trace of at least `size` bytes of text; returns how many there are."""
    document = json.loads(gzip.decompress(trace.read_bytes()), strict=False)
    events = document.pop("traceEvents")
    times = [one["ts"] for one in events if "ts" in one]
    length, written = max(times) - min(times) + 1e6, 0
    with gzip.open(path, "wt", compresslevel=1) if path.suffix == ".gz" else path.open("w") as file:
        written += file.write(json.dumps(document)[:-1] + ',\n"traceEvents": [')
        repeat = 0
        while written < size:
            text = ",\n".join(json.dumps(later(one, repeat, length), indent=1) for one in events)
            written += file.write((",\n" if repeat else "\n") + text)
            repeat += 1
        written += file.write("]}")
    return written


def later(event: dict[str, Any], repeat: int, length: float) -> dict[str, Any]:
    """The same event of a later repetition."""
    found = dict(event)
    if "ts" in event:
        found["ts"] = event["ts"] + repeat * length
    arguments = event.get("args")
    if isinstance(arguments, dict) and isinstance(arguments.get("correlation"), int):
        found["args"] = arguments | {"correlation": arguments["correlation"] + repeat * 10**8}
    if str(event.get("name", "")).startswith("ProfilerStep#"):
        found["name"] = f"{event['name']}{repeat:04}"
    return found


def measured(path: Path) -> tuple[float, float]:
    """Seconds of one core, and MiB at most, of diagnosing a file: other work on the machine does not count."""
    own = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    done = subprocess.run([*DIAGNOSE, str(path)], stdout=subprocess.DEVNULL, env=os.environ | own, check=False)
    assert done.returncode in (0, 1), done.returncode
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(main())
