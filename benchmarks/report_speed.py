"""A report of 50 layouts of 100 steps beside its goals: seconds to write, bytes, seconds to open in Chromium.

    python benchmarks/report_speed.py [--repeats 5]

Writing is a process of its own with its imports, without PNGs and with the JavaScript bundle in the cache: the first
report of a machine makes it. Opening ends when the last chart is drawn. The best of the repeats counts, since other
work on the machine only adds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
LAYOUTS, STEPS = 50, 100
WRITE_GOAL, BYTES_GOAL, OPEN_GOAL = 3.0, 8e6, 2.0
WRITE = (sys.executable, "-m", "meshwright", "report", "--no-png")


def main() -> int:
    """Print the figures; exit code 1 when one is missed."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    sys.path.insert(0, str(ROOT))
    from meshwright.bench.documents import write_results
    from tests.report.example import large

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_results(large(LAYOUTS, STEPS), folder)
        subprocess.run([*WRITE, name], check=True, stdout=subprocess.DEVNULL)
        written = best(lambda: subprocess.run([*WRITE, name], check=True, stdout=subprocess.DEVNULL), repeats)
        page = folder / "report.html"
        figures = [("write", written, WRITE_GOAL, "s"), ("size", page.stat().st_size / 1e6, BYTES_GOAL / 1e6, "MB")]
        figures.append(("open", seconds_to_open(page, repeats), OPEN_GOAL, "s"))
    for what, reached, goal, unit in figures:
        told = "not measured: no Chromium here" if reached is None else f"{reached:.2f} {unit}"
        print(f"{what:6} {told:12} goal {goal:g} {unit}{'' if reached is None or reached <= goal else '  MISSED'}")
    return int(any(reached is not None and reached > goal for _, reached, goal, _ in figures))


def best(run: Callable[[], object], repeats: int) -> float:
    """The least seconds that `run` takes."""
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return min(taken)


def seconds_to_open(page: Path, repeats: int) -> float | None:
    """From the request to the last chart; None without Chromium."""
    from tests.report.browser import browser, chromium, opened

    if chromium() is None:
        return None
    taken = []
    with browser() as found:
        for _ in range(repeats):
            tab, _ = opened(found, page)
            # Its zero is the start of the navigation.
            taken.append(tab.evaluate("performance.now()") / 1e3)
            tab.close()
    return float(min(taken))


if __name__ == "__main__":
    sys.exit(main())
