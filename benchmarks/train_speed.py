"""Speed of the layouts on two CPU ranks, beside plain PyTorch scripts, in one run.

    OMP_NUM_THREADS=1 python benchmarks/train_speed.py [STEPS]

Model bench-6m (dim 256, 6 layers, 16 heads, SwiGLU 768, vocabulary 2,048), sequences of 256, fp32, AdamW, 2,048 tokens
a step, one thread a rank. All programs live in the same two ranks and take turns step by step, in another order each
time; a ratio is the median over steps of the ratio of two steps of one turn, so that a slow minute slows both sides.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parent))

TOKENS, SEQ, BATCH = 2048, 256, 8
PLAIN = ("plain ddp", "plain fsdp2")
LAYOUTS = (
    "ddp2 mbs4", "fsdp2 mbs4", "zero1:2 mbs4", "zero2:2 mbs4", "tp2 mbs8",
    "pp2:gpipe mbs2", "pp2:1f1b mbs2", "pp2:interleaved1f1b:3 mbs2", "pp2:interleavedzerobubble:3 mbs2",
    "pp2:zbvzerobubble mbs2", "pp2:dualpipev mbs2",
    # By hand, so that the head does not lie beside as many layers as the other rank has.
    "pp2:zbvzerobubble mbs2 stages:2-1-2-1", "pp2:dualpipev mbs2 stages:2-1-2-1",
)  # fmt: skip
WARM_UP = 2
GOALS = (
    ("DDP", "ddp2 mbs4", "plain ddp", 1.0),
    ("FSDP2", "fsdp2 mbs4", "plain fsdp2", 1.05),
    ("ZeRO-1", "zero1:2 mbs4", "ddp2 mbs4", 0.95),
    ("ZeRO-2", "zero2:2 mbs4", "ddp2 mbs4", 0.95),
    ("TP", "tp2 mbs8", "ddp2 mbs4", 0.65),
)


Program = Callable[[int], None]
"""One step on this rank, the loss read at its end."""


def layout_program(text: str) -> Program:
    """A layout's step: what `meshwright train` does in one."""
    from meshwright.modes.mesh import make_mesh
    from meshwright.modes.options import Options
    from meshwright.spec import parse_layout
    from meshwright.train.assemble import assemble
    from meshwright.train.batch import Batch
    from meshwright.train.models.build import load_architecture
    from meshwright.train.optim.config import OptimConfig
    from meshwright.train.optim.optimizer import make_optimizer
    from meshwright.train.update import update

    layout = parse_layout(text)
    mesh = make_mesh(layout)
    step = assemble(load_architecture("bench-6m"), mesh, Options())
    optimizer = make_optimizer(step.parallel.parts, OptimConfig(lr=8e-4))
    rows, micro = BATCH // layout.data, layout.micro_batch
    positions = torch.arange(SEQ).expand(micro, -1).contiguous()

    def run(index: int) -> None:
        generator = torch.Generator().manual_seed(index * 1000 + mesh.index("data"))
        tokens = torch.randint(2048, (rows, SEQ + 1), generator=generator)
        batches = [Batch(t[:, :-1].contiguous(), t[:, 1:].contiguous(), positions) for t in tokens.split(micro)]
        done = update(step, optimizer, batches, target_tokens=TOKENS, max_norm=1.0)
        share = done.share if step.reports else torch.zeros_like(done.share)
        dist.all_reduce(share)
        share.item()

    return run


def seconds_of_steps(steps: int) -> dict[str, list[float]]:
    """Seconds of each step of each program on this rank."""
    from plain import scripts

    programs: dict[str, Program] = {"plain ddp": scripts.ddp(BATCH // 2), "plain fsdp2": scripts.fsdp2(BATCH // 2)}
    programs |= {name: layout_program(name) for name in LAYOUTS}
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for index in range(WARM_UP + steps):
        order = list(programs)
        random.Random(index).shuffle(order)
        for name in order:
            dist.barrier()
            begin = time.perf_counter()
            programs[name](index)
            seconds[name].append(time.perf_counter() - begin)
    return {name: values[WARM_UP:] for name, values in seconds.items()}


def main() -> None:
    from meshwright.train.launch.pool import RankPool

    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    with RankPool(2) as pool:
        first, second = pool.run(seconds_of_steps, steps, timeout=60 + 30 * steps)
    slowest = {name: [max(pair) for pair in zip(first[name], second[name], strict=True)] for name in first}
    speeds = {name: [TOKENS / seconds for seconds in values] for name, values in slowest.items()}
    best = max((name for name in LAYOUTS if name.startswith("pp")), key=lambda name: median(speeds[name]))
    print("| program | tokens/s, median | best |\n| --- | ---: | ---: |")
    for name, values in speeds.items():
        print(f"| {name if name in PLAIN else f'`{name}`'} | {median(values):,.0f} | {max(values):,.0f} |")
    print("\n| mode | beside | ratio | goal | met |\n| --- | --- | ---: | ---: | --- |")
    for what, ours, other, goal in (*GOALS, ("best pipeline", best, "ddp2 mbs4", 0.9)):
        ratio = median(a / b for a, b in zip(speeds[ours], speeds[other], strict=True))
        print(f"| {what}: `{ours}` | {other} | {ratio:.2f} | ≥ {goal} | {'yes' if round(ratio, 2) >= goal else 'no'} |")


if __name__ == "__main__":
    main()
