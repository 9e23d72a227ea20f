"""Bus bandwidth that `meshwright comms` tells beside a bare loop of torch.distributed calls of the same sizes.

    python benchmarks/comms_speed.py [--ranks 4] [--repeats 5] [--json]

Both run in the same ranks and take turns, so that what else the machine does meets both. 1.00 is what the loop reaches;
the exit code is 1 when the median over operations and sizes is below 0.95.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from meshwright.bench.comms.lines import lines_of_nodes
from meshwright.bench.comms.measure import Effort, measure
from meshwright.bench.comms.operations import OPERATIONS, bus_factor
from meshwright.train.launch.pool import RankPool

SIZES = (2**16, 2**20, 2**23)
TARGET = 0.95
ITERATIONS = {2**16: 60, 2**20: 25, 2**23: 6}


def bare_seconds(operation: str, size: int, iterations: int) -> float:
    """Seconds of one call in a loop that does nothing else."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    # Not zeros: what was never written is one page of the system's, and stays in the cache.
    whole, other, part = torch.empty(size // 4), torch.empty(size // 4), torch.empty(size // 4 // ranks)
    for tensor in (whole, other, part):
        tensor.fill_(1e-3)

    def ring() -> None:
        works = [dist.isend(whole, (rank + 1) % ranks), dist.irecv(other, (rank - 1) % ranks)]
        for work in works:
            work.wait()  # type: ignore[union-attr]

    calls: dict[str, Callable[[], Any]] = {
        "all-reduce": lambda: dist.all_reduce(whole),
        "all-gather": lambda: dist.all_gather_single(whole, part),
        "reduce-scatter": lambda: dist.reduce_scatter_single(part, whole),
        "all-to-all": lambda: dist.all_to_all_single(other, whole),
        "broadcast": lambda: dist.broadcast(whole, 0),
        "send/recv": ring,
    }
    call = calls[operation]
    for _ in range(2):
        call()
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(iterations):
        call()
    return (time.perf_counter() - begin) / iterations


def both(repeats: int) -> list[tuple[str, int, float, float]]:
    """Operation, size, and the medians of the bare loop's and of `comms`' bytes/s on the bus."""
    ranks = dist.get_world_size()
    lines = lines_of_nodes([0] * ranks)
    found = []
    for operation in OPERATIONS:
        for size in SIZES:
            bare, told = [], []
            for turn in range(2 * repeats):
                if turn % 2:
                    taken = torch.tensor(bare_seconds(operation, size, ITERATIONS[size]), dtype=torch.float64)
                    dist.all_reduce(taken)
                    bare.append(size / (float(taken) / ranks) * bus_factor(operation, ranks))
                else:
                    (row,) = measure(lines, [operation], [size], Effort(0, ITERATIONS[size]), torch.device("cpu"))
                    told.append(row.bus_bytes_per_s or 0.0)
            found.append((operation, size, statistics.median(bare), statistics.median(told)))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; exit code 1 when the median ratio is below the target."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one JSON document")
    options = parser.parse_args(arguments)
    with RankPool(options.ranks) as pool:
        rows = pool.run(both, options.repeats, timeout=1800)[0]
    ratios = [told / bare for _, _, bare, told in rows]
    if options.json:
        names = ("operation", "bytes", "bare_bus_bytes_per_s", "comms_bus_bytes_per_s")
        print(json.dumps({"rows": [dict(zip(names, row, strict=True)) for row in rows], "ratios": ratios}, indent=2))
    else:
        print(f"{'operation':16}{'MiB':>8}{'bare GB/s':>12}{'comms GB/s':>12}{'ratio':>8}")
        for (operation, size, bare, told), ratio in zip(rows, ratios, strict=True):
            print(f"{operation:16}{size / 2**20:8.3g}{bare / 1e9:12.3f}{told / 1e9:12.3f}{ratio:8.2f}")
        print(f"median ratio {statistics.median(ratios):.3f}, lowest {min(ratios):.3f}; target {TARGET}")
    return 0 if statistics.median(ratios) >= TARGET else 1


if __name__ == "__main__":
    raise SystemExit(main())
