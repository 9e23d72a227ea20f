"""The figures that Meshwright is held to, measured now: `python benchmarks/figures.py [--markdown | --json]`.

Errors and regret come from the catalogue's published runs; speed and memory from new processes on this machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from meshwright.plan.backtest import Backtest, backtest
from meshwright.plan.history import runs
from meshwright.plan.scores import ErrorScore

SEARCH = ("plan", "gpt3-175b", "--cluster", "4096xA100-80GB", "--json")
SMALL_PLAN = ("plan", "llama-2-7b", "--cluster", "8xA100-40GB")
REPEATS = 5
GIB = 2**30


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure: what was reached and what it must be."""

    what: str
    reached: str
    target: str
    met: bool


@dataclass(frozen=True, slots=True)
class Process:
    """What one process of the command took."""

    seconds: float
    """From start to exit."""
    peak_bytes: int
    """Largest resident set."""
    output: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; exit code 1 when a figure is missed."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="a Markdown table")
    form.add_argument("--json", action="store_true", help="one JSON document")
    options = parser.parse_args(arguments)
    figures = [*accuracy(backtest(runs())), *search(), *small_plan()]
    if options.json:
        print(json.dumps([dataclasses.asdict(figure) for figure in figures], indent=2, ensure_ascii=False))
    else:
        print(markdown(figures) if options.markdown else aligned(figures))
    return 0 if all(figure.met for figure in figures) else 1


def accuracy(result: Backtest) -> list[Figure]:
    """How wrong the prices are, on `validate` rows; and what the picks lost."""
    scores = {(headline.name, headline.quantity): headline.score for headline in result.headlines}
    regret = result.regret
    if regret is None:
        raise SystemExit("error: the catalogue has no job that was run in several layouts")
    return [
        _error("Korthikanti 2022, 8 rows: time, mean", scores["Korthikanti 2022, table 5", "time"], _mean, 0.04),
        _error("Korthikanti 2022, 8 rows: time, worst", scores["Korthikanti 2022, table 5", "time"], _worst, 0.08),
        _error("vTrain, several nodes: time, mean", scores["vTrain, multi-node", "time"], _mean, 0.09),
        _error("vTrain, one node: time, mean", scores["vTrain, single-node", "time"], _mean, 0.08),
        _error("Ultra-Scale: time, median", scores["Ultra-Scale", "time"], _median, 0.10),
        _error("Ultra-Scale: memory, median", scores["Ultra-Scale", "memory"], _median, 0.07),
        _at_most(f"regret of the pick, mean of {regret.groups} jobs", regret.mean, 0.03, _percent),
        _at_most("picks that ran out of memory", regret.picks_out_of_memory, 0, str),
    ]


def search() -> list[Figure]:
    """Candidates, seconds and memory of one large search, on one core."""
    process = run_command(SEARCH, one_core=True)
    plan = json.loads(process.output)
    return [
        Figure(
            "search, GPT-3 175B on 4,096 devices: candidates",
            f"{plan['searched']:,} ({plan['searched'] / plan['seconds']:,.0f} a second)",
            "≥ 1,000,000",
            plan["searched"] >= 1_000_000,
        ),
        _at_most("the same: seconds on one core", plan["seconds"], 10.0, _seconds),
        _at_most("the same: peak memory", process.peak_bytes / GIB, 2.0, lambda value: f"{value:.2f} GiB"),
    ]


def small_plan() -> list[Figure]:
    """Wall time of the whole process on a warm machine, and whether it imported torch."""
    name = f"meshwright {' '.join(SMALL_PLAN)}"
    run_command(SMALL_PLAN)
    seconds = statistics.median(run_command(SMALL_PLAN).seconds for _ in range(REPEATS))
    probe = (
        "import sys; from meshwright.cli.frame import main; code = main(sys.argv[1:]); "
        "sys.exit(code or 3 * ('torch' in sys.modules))"
    )
    torch = subprocess.run([sys.executable, "-c", probe, *SMALL_PLAN], capture_output=True, check=False).returncode
    return [
        _at_most(f"{name}: median of {REPEATS} runs", seconds, 1.0, _seconds),
        Figure(f"{name}: imports torch", "no" if torch == 0 else "yes", "no", torch == 0),
    ]


def run_command(arguments: Sequence[str], *, one_core: bool = False) -> Process:
    """Run a verb in a process of its own; raises SystemExit with its message when it fails."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1") if one_core else {}
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        started = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "meshwright", *arguments], stdout=output, env=os.environ | threads
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"error: meshwright {' '.join(arguments)} ended with {process.returncode}")
        output.seek(0)
        # Linux counts the resident set in KiB, macOS in bytes.
        unit = 1 if sys.platform == "darwin" else 1024
        return Process(seconds, usage.ru_maxrss * unit, output.read())


def _mean(score: ErrorScore) -> float:
    return score.mape


def _median(score: ErrorScore) -> float:
    return score.median


def _worst(score: ErrorScore) -> float:
    return score.worst


def _error(what: str, score: ErrorScore, figure: Callable[[ErrorScore], float], most: float) -> Figure:
    return _at_most(what, figure(score), most, _percent)


def _at_most(what: str, value: float, most: float, written: Callable[[Any], str]) -> Figure:
    return Figure(what, written(value), f"≤ {written(most)}" if most else written(most), value <= most)


def _percent(share: float) -> str:
    return f"{share * 100:.2f} %"


def _seconds(value: float) -> str:
    return f"{value:.2f} s"


def aligned(figures: Sequence[Figure]) -> str:
    """The table in columns."""
    rows = [("what", "reached", "target", "met"), *(_cells(figure) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(
        "  ".join((*(cell.ljust(width) for cell, width in zip(row[:3], widths, strict=True)), row[3])) for row in rows
    )


def markdown(figures: Sequence[Figure]) -> str:
    """The table in Markdown."""
    head = "| what | reached | target | met |\n| --- | ---: | ---: | --- |"
    return "\n".join((head, *(f"| {' | '.join(_cells(figure))} |" for figure in figures)))


def _cells(figure: Figure) -> tuple[str, str, str, str]:
    return figure.what, figure.reached, figure.target, "yes" if figure.met else "no"


if __name__ == "__main__":
    sys.exit(main())
