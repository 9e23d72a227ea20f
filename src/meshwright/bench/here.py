"""One layout measured in the ranks that a launcher has started: what the scripts in `examples/` are made of."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import torch.distributed as dist

from meshwright.bench.about import machine_of, work_of
from meshwright.bench.case import Case
from meshwright.bench.documents import write_results
from meshwright.bench.merged_trace import merge_traces
from meshwright.bench.program import run_case
from meshwright.bench.result import DONE, Bench, Row
from meshwright.bench.rows import row_of
from meshwright.spec.units import binary, duration, percent
from meshwright.train.config.job import Job
from meshwright.train.config.read import read_config
from meshwright.train.config.resolve import resolve
from meshwright.train.launch.environment import read_place
from meshwright.train.launch.error_files import record_errors
from meshwright.train.launch.process_group import finalize, initialize


def arguments(what: str, *, micro_batch: bool = True) -> argparse.ArgumentParser:
    """The options that every script has; `micro_batch`: whether one of them is that."""
    parser = argparse.ArgumentParser(description=what, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--model", default="gpt_small", help="a preset, or a config.json")
    parser.add_argument("--seq-len", type=int, default=256, help="tokens a sequence")
    parser.add_argument("--global-batch", type=int, default=16, help="sequences a step, over all ranks")
    parser.add_argument("--precision", default="fp32", choices=("fp32", "bf16", "fp16"))
    if micro_batch:
        parser.add_argument("--micro-batch", type=int, default=1, help="sequences that a rank computes at once")
    parser.add_argument("--steps", type=int, default=10, help="timed steps")
    parser.add_argument("--warm-up", type=int, default=3, help="steps before them")
    parser.add_argument("--trace", type=int, default=2, help="traced steps after them; 0: none")
    parser.add_argument("--device", default="auto", choices=("auto", "cuda", "cpu"))
    parser.add_argument("--out", default="", help="folder for results.json and trace.json.gz; empty: runs/MODEL-LAYOUT")
    return parser


def bench_here(options: argparse.Namespace, layout: Callable[[int], str]) -> Row | None:
    """Measure the layout that `layout` names for so many ranks; the first rank prints it, and returns its Row."""
    place = read_place()
    named = layout(place.world_size)  # may choose the micro-batch
    text = f"{named} mbs{options.micro_batch}"
    is_file = "/" in options.model or options.model.endswith(".json")
    model = options.model if is_file else options.model.replace("_", "-")
    folder = Path(options.out or f"runs/{Path(model).stem}-{text.replace(' ', '-').replace(':', '-')}")
    with record_errors(place.rank, folder):
        flags = {
            "model": model, "layout": text, "train.seq_len": str(options.seq_len),
            "train.global_batch": str(options.global_batch), "train.precision": options.precision,
            "launch.device": options.device, "data.source": "synthetic:chain", "run": str(folder),
        }  # fmt: skip
        job = resolve(read_config(None, flags))
        folder.mkdir(parents=True, exist_ok=True)
        initialize(place, device=job.device, backend=job.backend)
        measured = run_case(Case(flags, options.steps, max(options.warm_up, 2), options.trace), str(folder))
        ranks: list[dict[str, object]] = [{} for _ in range(place.world_size)]
        dist.all_gather_object(ranks, measured)
        row = None
        if place.rank == 0:
            merge_traces(ranks, folder)
            row = row_of(text, job.model, job.workload, job.layout, [ranks], DONE)
            write_results(_bench(job, row, options), folder)
            print("\n".join(lines(row)), flush=True)
        dist.barrier()
        finalize()
    return row


def _bench(job: Job, row: Row, options: argparse.Namespace) -> Bench:
    """A bench of one row, as `meshwright report` reads it."""
    return Bench(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        command=shlex.join(sys.argv),
        work=work_of(job, options.steps, options.warm_up, 1),
        machine=machine_of(job),
        baseline=row.label,
        rows=(row,),
        planned=1,
        finished=1,
    )


def lines(row: Row) -> list[str]:
    """What a person reads of a Row."""
    assert row.step is not None
    assert row.memory_bytes is not None
    told = [
        f"{row.layout} on {row.ranks} ranks",
        f"  step        {duration(row.step.median)}; most {duration(row.step.low)} to {duration(row.step.high)}",
        f"  throughput  {row.tokens_per_second:,.0f} tokens/s, {row.samples_per_second:,.1f} sequences/s",
        f"  memory      {binary(row.memory_bytes)} ({row.memory_kind})",
    ]
    if row.phases:
        told.append("  phases      " + ", ".join(f"{name} {duration(value)}" for name, value in row.phases.items()))
    if row.activity is not None:
        told.append(
            f"  time        compute {duration(row.activity.compute)}, communication "
            f"{duration(row.activity.communication)}, of it exposed {duration(row.activity.exposed)}"
        )
    if row.bubble is not None and row.bubble_formula is not None:
        told.append(f"  bubble      {percent(row.bubble)} measured, {percent(row.bubble_formula)} by the formula")
    for line in row.traffic:
        told.append(
            f"  {line.collective} over {line.axis}: {line.count:,.0f} a step, {binary(line.bytes)} sent by a rank "
            f"(formula: {binary(line.expected_bytes)})"
        )
    return told
