"""The use of the hardware that a program reports: too little, more than is possible, a host that can't keep up."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import INFO, LIKELY, POSSIBLE, WARNING, Evidence, Finding
from meshwright.diagnose.metrics.pairs import job_of
from meshwright.diagnose.metrics.series import Pauses, Run, runs

LOW_MFU = 0.05
SHORT_STEP = 0.5
"""Seconds: launches, all-reduces and the optimizer's fixed costs are a good part of a shorter step."""
MOST_TFLOPS = 5000.0
"""Dense TFLOP/s that no GPU of 2026 does in 16 bits (catalog/devices.toml: 2500 at most)."""
KERNELS = 1000
"""Launches a step at about 5 to 10 µs each are 5 to 10 ms of the host (CUDA launch latency)."""
BUSY = 0.5


def too_much(facts: Facts) -> Iterator[Finding]:
    """More than the peak: FLOPs are counted for a model that is not the one that runs (Megatron-LM #1778)."""
    for run in runs(facts):
        for name, most, words in (("mfu", 1.0, "MFU of {:.0%}"), ("tflops", MOST_TFLOPS, "{:.0f} TFLOP/s a GPU")):
            over = [(point, value) for point, value in run.of(name) if value > most]
            if len(over) >= 2:
                yield Finding(
                    "pipeline_layout", WARNING, LIKELY, (),
                    f"{words.format(over[-1][1])} is more than the hardware can do: the work is counted for another "
                    f"model than "
                    "the one that runs (layers left out of stages, or a wrong formula).",
                    tuple(run.evidence(point) for point, _ in over[:2]),
                    "Count the parameters on all ranks and compare with the model's.",
                    ("Check that the layers of all stages add up to the model's.", "Correct the count before tuning."),
                )  # fmt: skip
                break


def too_little(facts: Facts) -> Iterator[Finding]:
    """Short steps at a low MFU: too little work for so many GPUs (NeMo-RL #1844, open)."""
    said = facts.of(Pauses).said
    found: list[tuple[float, float, tuple[Evidence, ...], str]] = []
    if {"utilization", "step_seconds"} <= said.keys():
        found.append((
            said["utilization"][0] / 100, said["step_seconds"][0],
            (said["utilization"][1], said["step_seconds"][1]), said["utilization"][1].path,
        ))  # fmt: skip
    for run in runs(facts):
        if (pair := _usual(run)) is not None:
            found.append((*pair, (run.evidence(run.points[-1]),), run.path))
    for mfu, seconds, evidence, path in found:
        if 0 < mfu < LOW_MFU and 0 < seconds < SHORT_STEP:
            world = job_of(facts, path).world
            yield Finding(
                "low_mfu_small_work", WARNING if world > 1 else INFO, POSSIBLE, (),
                f"An MFU of {mfu:.2%} at {seconds:.2g} s a step"
                + (f" on {world} GPUs" if world else "")
                + ": there may be too little work in a step for its fixed costs.",
                evidence, "Double the micro-batch or the sequence: a step that hardly takes longer had too little "
                    "work.",
                ("Raise the micro-batch or pack sequences.", "Use fewer GPUs for a model of this size."),
            )  # fmt: skip
            return


def _usual(run: Run) -> tuple[float, float] | None:
    """Median MFU and seconds of a run's steps after its start."""
    mfu, seconds = [[value for _, value in run.of(name)[5:]] for name in ("mfu", "seconds")]
    return (median(mfu), median(seconds)) if len(mfu) >= 5 and len(seconds) >= 5 else None


def launches(facts: Facts) -> Iterator[Finding]:
    """Many small kernels and a GPU that idles between them, as a person or a profiler says (lerobot #4612)."""
    said = facts.of(Pauses).said
    kernels, busy = said.get("kernels_per_step"), said.get("gpu_busy")
    many, idle = kernels is not None and kernels[0] >= KERNELS, busy is not None and busy[0] < 100 * BUSY
    if not (many or idle):
        return
    told = [f"{kernels[0]:.0f} kernels a step"] if many and kernels else []
    told += [f"a GPU that is busy {busy[0]:.0f} % of the time"] if idle and busy else []
    yield Finding(
        "cpu_launch_bound", WARNING, POSSIBLE, (), f"{' and '.join(told).capitalize()}: the host may not launch "
            f"kernels fast enough.",
        tuple(one[1] for one in (kernels, busy) if one is not None),
        "See in a trace whether the GPU waits for launches, and how long kernels take.",
        ("Compile the model (torch.compile(mode='reduce-overhead')) or use CUDA graphs.",
         "Use a larger batch and a fused optimizer."), weight=int(many and idle),
    )  # fmt: skip
