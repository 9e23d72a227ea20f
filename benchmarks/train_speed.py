"""Speed of the layouts on two CPU ranks, beside plain PyTorch scripts, in one run.

    OMP_NUM_THREADS=1 python benchmarks/train_speed.py [ROUNDS] [STEPS]

Model bench-6m (dim 256, 6 layers, 16 heads, SwiGLU 768, vocabulary 2,048), sequences of 256, fp32, AdamW, 2,048 tokens
a step, one thread a rank. Programs take turns within a round, in another order each round; a ratio is the median over
rounds of the ratio within a round, so that a slow minute slows both sides.
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

TOKENS, SEQ, BATCH = 2048, 256, 8
PLAIN = ("plain ddp", "plain fsdp2")
LAYOUTS = (
    "ddp2 mbs4", "fsdp2 mbs4", "zero1:2 mbs4", "zero2:2 mbs4", "tp2 mbs8",
    "pp2:gpipe mbs2", "pp2:1f1b mbs2", "pp2:interleaved1f1b:3 mbs2", "pp2:interleavedzerobubble:3 mbs2",
    "pp2:zbvzerobubble mbs2", "pp2:dualpipev mbs2",
)  # fmt: skip
WARM_UP = 2
GOALS = (
    ("DDP", "ddp2 mbs4", "plain ddp", 1.0),
    ("FSDP2", "fsdp2 mbs4", "plain fsdp2", 1.05),
    ("ZeRO-1", "zero1:2 mbs4", "ddp2 mbs4", 0.95),
    ("ZeRO-2", "zero2:2 mbs4", "ddp2 mbs4", 0.95),
    ("TP", "tp2 mbs8", "ddp2 mbs4", 0.65),
)


def layout_steps(text: str, steps: int) -> list[float]:
    """Seconds of each step of a layout on this rank: what `meshwright train` does in a step."""
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
    seconds = []
    for index in range(steps):
        generator = torch.Generator().manual_seed(index * 1000 + mesh.index("data"))
        tokens = torch.randint(2048, (rows, SEQ + 1), generator=generator)
        batches = [Batch(t[:, :-1].contiguous(), t[:, 1:].contiguous(), positions) for t in tokens.split(micro)]
        dist.barrier()
        begin = time.perf_counter()
        done = update(step, optimizer, batches, target_tokens=TOKENS, max_norm=1.0)
        share = done.share if step.reports else torch.zeros_like(done.share)
        dist.all_reduce(share)
        share.item()
        seconds.append(time.perf_counter() - begin)
    return seconds


def main() -> None:
    from plain import scripts

    from meshwright.train.launch.pool import RankPool

    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    rounds, steps = (*numbers, *(5, 12)[len(numbers) :])
    speeds: dict[str, list[float]] = {name: [] for name in (*PLAIN, *LAYOUTS)}
    with RankPool(2) as pool:
        for index in range(rounds):
            order = list(speeds)
            random.Random(index).shuffle(order)
            for name in order:
                if name == "plain ddp":
                    found = pool.run(scripts.ddp, steps, BATCH // 2, timeout=300)
                elif name == "plain fsdp2":
                    found = pool.run(scripts.fsdp2, steps, BATCH // 2, timeout=300)
                else:
                    found = pool.run(layout_steps, name, steps, timeout=300)
                slowest = [max(pair) for pair in zip(*found, strict=True)][WARM_UP:]
                speeds[name].append(TOKENS / median(slowest))
                print(f"round {index + 1}: {name:34s} {speeds[name][-1]:8,.0f} tokens/s", file=sys.stderr, flush=True)
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
