"""Benches made up by hand: eight rows of every kind, and a large one."""

from __future__ import annotations

import math
from typing import Any

from meshwright.bench.result import (
    DONE,
    FAILED,
    OUT_OF_MEMORY,
    REFUSED,
    Action,
    Activity,
    Agreement,
    Bench,
    MeasuredTraffic,
    Predicted,
    Row,
    Spread,
    StageWork,
)

GIB = 2.0**30
MEMORY_SHARES = {"parameters": 0.25, "gradients": 0.25, "optimizer": 0.4, "rest": 0.1}
PHASE_SHARES = {"forward": 0.3, "backward": 0.55, "optimizer": 0.1}
WORK = {
    "model": "gpt-small", "parameters": 124_000_000, "seq_len": 256, "global_batch": 32, "tokens_per_step": 8192,
    "precision": "bf16", "optimizer": "adamw", "steps": 20, "warm_up": 5, "repeats": 3, "seed": 0,
}  # fmt: skip
MACHINE = {"device": "cpu", "backend": "gloo", "ranks": 4, "nodes": 1, "torch": "2.13.0", "cluster": "cluster.toml"}


def spread(median: float, half: float = 0.02) -> Spread:
    """A median with a tenth percentile and a ninetieth `half` of it away."""
    return Spread(median, median * (1 - half), median * (1 + half), (median * (1 - half), median, median * (1 + half)))


def losses(steps: int, shift: float = 0.0) -> tuple[float, ...]:
    """A falling curve from 6 towards 3; `shift` is its relative distance to the baseline's."""
    return tuple((3 + 3 * math.exp(-step / 8)) * (1 + shift * step / steps) for step in range(steps))


def done(
    label: str, seconds: float, gib: float, *, ranks: int = 4, half: float = 0.02, steps: int = 20, shift: float = 0.0,
    exposed: float = 0.1, predicted: float | None = None, **more: Any,
) -> Row:  # fmt: skip
    """A measured row with all its parts; `exposed` is a share of the step, `predicted` the predicted seconds."""
    moved = gib * GIB / 20
    return Row(
        label, more.pop("layout", f"{label} mbs8"), ranks, DONE,
        step=spread(seconds, half), tokens_per_second=8192 / seconds, samples_per_second=32 / seconds,
        mfu=0.03 / seconds,
        memory_bytes=gib * GIB, memory_kind="allocator's peak",
        memory_parts={name: share * gib * GIB for name, share in MEMORY_SHARES.items()},
        rank_memory_bytes=(gib * GIB,) * ranks,
        phases={name: share * seconds for name, share in PHASE_SHARES.items()},
        activity=Activity(*(seconds * share for share in (0.95 - exposed, exposed + 0.1, 0.1, exposed, 0.05))),
        traffic=more.pop("traffic", (MeasuredTraffic("data", "all-reduce", 12.0, moved, moved, 0.01, 0.004),)),
        loss=losses(steps, shift), loss_error=abs(shift),
        grad_norm=tuple(2 / (1 + step) ** 0.5 for step in range(steps)),
        predicted=None if predicted is None else Predicted(predicted, 8192 / predicted, gib * GIB * 1.1, "fits", 0.0),
        prediction_missing="" if predicted is not None else "no formula for this mode",
        **more,
    )  # fmt: skip


def pipeline(
    micro_batches: int, ranks: int, seconds: float, kinds: tuple[str, ...] = ("forward", "backward")
) -> tuple[Action, ...]:
    """GPipe by hand: all forwards, then all backwards of twice the length."""
    unit = seconds / (3 * (micro_batches + ranks - 1))
    found = []
    for rank in range(ranks):
        for m in range(micro_batches):
            found.append(Action(rank, rank, m, kinds[0], (rank + m) * unit, unit))
            start = (ranks + micro_batches - 1) * unit + (ranks - 1 - rank + m) * 2 * unit
            share = 2 * unit / (len(kinds) - 1)
            found += [Action(rank, rank, m, kind, start + i * share, share) for i, kind in enumerate(kinds[1:])]
    return tuple(found)


def stages(ranks: int, seconds: float, bubble: float) -> tuple[StageWork, ...]:
    """Ranks that idle around `bubble` of the step, the first least."""
    shares = [bubble * (0.8 + 0.4 * rank / max(1, ranks - 1)) for rank in range(ranks)]
    return tuple(StageWork(rank, (rank,), seconds * (1 - share), share) for rank, share in enumerate(shares))


LONG = "fsdp2 pp2:interleaved1f1b:2 ac:selective offload:optimizer"


def rows() -> tuple[Row, ...]:
    """ddp4 is the baseline: 100 ms and 10 GiB. fsdp4 takes 9 % longer with 38 % of the memory; LONG is fastest."""
    return (
        done("ddp4", 0.100, 10.0, predicted=0.095, predicted_place=3, measured_place=3),
        done("fsdp4", 0.109, 3.8, exposed=0.2, predicted=0.115, shift=1e-4, predicted_place=4, measured_place=4),
        done(LONG, 0.080, 6.0, predicted=0.085, predicted_place=1, measured_place=1, gantt=pipeline(8, 2, 0.08),
             stages=stages(2, 0.08, 0.12), bubble=0.12, bubble_formula=0.111, shift=2e-4,
             traffic=(MeasuredTraffic("shard", "all-gather", 24.0, GIB, GIB, 0.01, 0.002),
                      MeasuredTraffic("shard", "reduce-scatter", 12.0, GIB / 2, GIB / 2, 0.01, 0.002),
                      MeasuredTraffic("pipeline", "send", 16.0, GIB / 8, GIB / 8 * 1.02, 0.001, 0.001))),
        done("pp4:gpipe", 0.150, 4.2, predicted=0.140, predicted_place=5, measured_place=5, gantt=pipeline(8, 4, 0.15),
             stages=stages(4, 0.15, 0.28), bubble=0.28, bubble_formula=0.273, shift=-1e-4),
        done("ddp2", 0.190, 10.0, ranks=2),
        done("zero1:4", 0.099, 7.0, half=0.05, predicted=0.094, predicted_place=2, measured_place=2),
        Row("tp4 mbs32", "tp4 mbs32", 4, OUT_OF_MEMORY, reason="rank 2: 14.2 GiB asked, 12 GiB free"),
        Row("tp8", "tp8", 8, REFUSED, reason="8 ranks are asked for, the machine has 4"),
        Row("cp4:ring", "cp4:ring mbs8", 4, FAILED, reason="rank 1 ended with signal 11"),
    )  # fmt: skip


def bench(**changes: Any) -> Bench:
    """The example."""
    values: dict[str, Any] = {
        "created": "2026-01-02T03:04:05Z",
        "command": "meshwright bench --layouts 'ddp4, fsdp4'",
        "work": WORK,
        "machine": MACHINE,
        "baseline": "ddp4",
        "rows": rows(),
        "agreement": Agreement(5, 1.0, 0.0, 0.055, 0.1),
        "planned": 27,
        "finished": 27,
    }
    return Bench(**values | changes)


def micro_batches() -> tuple[Row, ...]:
    """One layout with three micro-batches."""
    return tuple(done(f"fsdp4 mbs{mbs}", 0.1 + 0.05 / mbs, 3 + mbs / 2, layout=f"fsdp4 mbs{mbs}") for mbs in (1, 2, 4))


def large(layouts: int = 50, steps: int = 100) -> Bench:
    """Many layouts of many steps; every fourth is a pipeline of four ranks with 32 micro-batches."""
    kinds = ("ddp4", "fsdp4", "zero2:4", "pp4:zbvzerobubble")
    found = []
    for index in range(layouts):
        mbs, kind = index // len(kinds) + 1, kinds[index % len(kinds)]
        seconds = 0.1 + 0.004 * ((index * 37) % layouts)
        piped: dict[str, Any] = {}
        if kind.startswith("pp"):
            kinds_of_work = ("forward", "input", "weight")
            piped = {"gantt": pipeline(32, 4, seconds, kinds_of_work), "stages": stages(4, seconds, 0.1),
                     "bubble": 0.1, "bubble_formula": 0.086}  # fmt: skip
        found.append(
            done(f"{kind} mbs{mbs}", seconds, 3 + (index * 13) % layouts / 5, steps=steps, shift=1e-5 * index,
                 predicted=seconds * (1 + 0.1 * math.sin(index)), layout=f"{kind} mbs{mbs}", **piped)
        )  # fmt: skip
    return bench(rows=tuple(found), baseline="ddp4 mbs1", agreement=Agreement(layouts, 0.98, 0.01, 0.05))
