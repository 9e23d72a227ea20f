"""What `meshwright bench` costs while it times: its steps beside a bare loop of the same layout, in one run.

    OMP_NUM_THREADS=1 python benchmarks/bench_overhead.py [STEPS]

Both live in the same two ranks and take turns step by step; the ratio is the median over turns.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parent))

LAYOUTS = ("ddp2 mbs4", "fsdp2 mbs4", "pp2:1f1b mbs2")


def seconds_of_steps(layout: str, steps: int) -> tuple[list[float], list[float]]:
    """Seconds of each bare step and of each of the bench's."""
    from train_speed import layout_program

    from meshwright.bench.clock import durations
    from meshwright.bench.program import Runner
    from meshwright.train.config.read import read_config
    from meshwright.train.config.resolve import resolve
    from meshwright.train.loop.setup import set_up

    flags = {
        "model": "bench-6m", "layout": layout, "train.seq_len": "256", "train.global_batch": "8",
        "data.source": "synthetic", "run": "/nonexistent",
    }  # fmt: skip
    setup = set_up(resolve(read_config(None, flags)), torch.device("cpu"))
    runner, bare = Runner(setup), layout_program(layout)
    found: dict[str, list[float]] = {"bare": [], "bench": []}
    with setup.loader:
        for index in range(steps + 2):
            order = list(found)
            random.Random(index).shuffle(order)
            for name in order:
                dist.barrier()
                if name == "bench":
                    found[name] += durations(runner.step, 1, setup.device).tolist()
                    continue
                begin = time.perf_counter()
                bare(index)
                found[name].append(time.perf_counter() - begin)
    return found["bare"][2:], found["bench"][2:]


def main() -> None:
    from meshwright.train.launch.pool import RankPool

    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    print("| layout | bench / bare | goal | met |\n| --- | ---: | ---: | --- |")
    with RankPool(2) as pool:
        for layout in LAYOUTS:
            ranks = pool.run(seconds_of_steps, layout, steps, timeout=120 + 30 * steps)
            bare, bench = ([max(pair) for pair in zip(*(one[k] for one in ranks), strict=True)] for k in (0, 1))
            ratio = median(b / a for a, b in zip(bare, bench, strict=True))
            print(f"| `{layout}` | {ratio:.3f} | ≤ 1.03 | {'yes' if ratio <= 1.03 else 'no'} |", flush=True)


if __name__ == "__main__":
    main()
