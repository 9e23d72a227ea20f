"""Devices that wait for their host: launches, data loading, allocations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import INFO, LIKELY, POSSIBLE, WARNING, Evidence, Finding
from meshwright.diagnose.traces.ranks import Rank, Step, Traces, label

BUSY, SMALL_KERNEL, MANY = 0.5, 20e-6, 1000
"""A device that works less than half of the time, on kernels of less than 20 us, a thousand a step: an eager host
needs 5 to 20 us for each (lerobot#4612: 1150 kernels, 31.5 ms a step, 30 % busy; 13.2 ms with CUDA graphs)."""
LAUNCH = 100e-6
"""Seconds of the step for each kernel. A host that takes longer does something else than launching."""
SOME = 300
"""Kernels a step from which it is worth a line."""
QUEUE_EMPTY = 50e-6
"""Seconds from launch to start: a launch alone takes about 10 us, and any queue of kernels more than this."""
LOADING = 0.1
"""Share of the steps that nothing happens in but waiting for data. Below it, there is more to gain elsewhere."""
HALF = 0.5
WITNESSES = 4


def launch_bound(facts: Facts) -> Iterator[Finding]:
    """The host cannot launch kernels as fast as the device runs them."""
    found: dict[str, list[tuple[Rank, float, float]]] = {}
    for rank in facts.of(Traces).ranks:
        kernels, busy, window = _launches(rank)
        if rank.on_gpu and kernels >= SOME and _starves(rank, busy):
            sure = bool(rank.steps) and kernels >= MANY and window <= LAUNCH * kernels
            found.setdefault(WARNING if sure else INFO, []).append((rank, kernels, busy))
    for severity, here in found.items():
        rank, kernels, busy = min(here, key=lambda one: one[2])
        yield Finding(
            "cpu_launch_bound", severity, LIKELY if severity == WARNING else POSSIBLE,
            _numbers([one[0] for one in here]),
            f"The device works {busy:.0%} of the time: {kernels:,.0f} kernels a {'step' if rank.steps else 'trace'} of "
            f"{rank.kernel_median * 1e6:.1f} us (median), and the host does not launch them faster.",
            tuple(_evidence(one, f"{count:,.0f} kernels, device busy {share:.0%}, from launch to start "
                            f"{(one.launch_delay or 0) * 1e6:.0f} us") for one, count, share in here[:WITNESSES]),
            "Twice the micro-batch takes hardly longer; no kernel waits in the queue.",
            ("torch.compile(mode='reduce-overhead') or CUDA graphs.", "A larger micro-batch.",
             "Fused or foreach optimizers; fewer small operators; no .item() and no printing in the step."),
            weight=1,
        )  # fmt: skip


def _launches(rank: Rank) -> tuple[float, float, float]:
    """Kernels a step, the share of time in which the device works, seconds of a step."""
    if not rank.steps:
        busy = rank.whole.compute + rank.whole.exposed
        return float(sum(work.count for work in rank.work.values())), busy / max(rank.whole.window, 1e-9), 0.0
    windows = [step.busy.window for step in rank.steps]
    busy = sum(step.busy.compute + step.busy.exposed for step in rank.steps)
    return float(median(step.kernels for step in rank.steps)), busy / max(sum(windows), 1e-9), median(windows)


def _starves(rank: Rank, busy: float) -> bool:
    """Small kernels, no queue or a busy host, and it is not the data that is waited for."""
    idle = sum(step.busy.idle for step in rank.steps)
    empty = rank.launch_delay is not None and rank.launch_delay < QUEUE_EMPTY
    host = sum(step.host_idle for step in rank.steps) >= HALF * idle > 0
    data = sum(step.loading_idle for step in rank.steps) >= HALF * idle > 0
    return busy < BUSY and 0 < rank.kernel_median < SMALL_KERNEL and (empty or host) and not data


def dataloader_bound(facts: Facts) -> Iterator[Finding]:
    """Nothing computes while the program waits for its DataLoader."""
    found = [(rank, share) for rank in facts.of(Traces).ranks if (share := _loading(rank)) >= LOADING]
    if not found:
        return
    rank, share = max(found, key=lambda one: one[1])
    period = _period(_settled(rank.steps))
    every = f", every {period} steps, which is often the number of workers" if period else ""
    yield Finding(
        "dataloader_bound", WARNING, LIKELY, _numbers([one for one, _ in found]),
        f"{share:.0%} of the steps goes by in waiting for the DataLoader while nothing computes{every}.",
        tuple(_evidence(one, f"waits for data {part:.0%} of the time") for one, part in found[:WITNESSES]),
        "Run some steps with one batch used again and again.",
        ("More workers (num_workers), prefetch_factor, persistent_workers and pin_memory.",
         "Decode and tokenise before training; faster or local storage; sequential shards."),
        weight=2,
    )  # fmt: skip


def _settled(steps: Sequence[Step]) -> Sequence[Step]:
    """Without the first, in which workers start and memory grows, if there are enough."""
    return steps[1:] if len(steps) > 2 else steps


def _loading(rank: Rank) -> float:
    steps = _settled(rank.steps)
    window = sum(step.busy.window for step in steps)
    return sum(step.loading_idle for step in steps) / window if window > 0 else 0.0


def _period(steps: Sequence[Step]) -> int | None:
    """The distance of steps that wait much longer than most, if it is always the same and not each."""
    waits = [step.loading_idle for step in steps]
    slow = [n for n, wait in enumerate(waits) if wait > 3 * median(waits) and wait > 1e-3]
    distances = {b - a for a, b in pairwise(slow)}
    return distances.pop() if len(slow) >= 3 and len(distances) == 1 and min(distances) > 1 else None


def alloc_retries(facts: Facts) -> Iterator[Finding]:
    """cudaMalloc and cudaFree within settled steps: the caching allocator gives memory back and asks again."""
    found = [(rank, _allocating(rank)) for rank in facts.of(Traces).ranks if len(rank.steps) >= 3]
    here = [(rank, steps) for rank, steps in found if steps]
    if not here:
        return
    rank, steps = max(here, key=lambda one: sum(step.allocating for step in one[1]))
    frees = any(step.frees for step in steps)
    share = sum(step.allocating for step in steps) / max(sum(step.busy.window for step in steps), 1e-9)
    yield Finding(
        "alloc_retries", WARNING if frees else INFO, LIKELY if frees else POSSIBLE, _numbers([one for one, _ in here]),
        f"{len(steps)} of {len(rank.steps) - 1} settled steps call "
        + ("cudaFree and cudaMalloc: the allocator's cache does not suffice and is emptied and filled again"
           if frees else "cudaMalloc: the allocator's cache still grows")
        + f", {share:.0%} of their time, and each waits for the device.",
        tuple(_evidence(rank, f"{step.name}: {step.allocations} cudaMalloc, {step.frees} cudaFree, "
                        f"{step.allocating * 1e3:.1f} ms", step.name) for step in steps[:WITNESSES]),
        "torch.cuda.memory_stats()['num_alloc_retries'] before and after some steps.",
        ("Use less memory until there are no retries: a smaller micro-batch, more recomputation or sharding.",
         "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True if shapes vary.",
         "No torch.cuda.empty_cache() in the step; limit_all_gathers with FSDP."),
        weight=2,
    )  # fmt: skip


def _allocating(rank: Rank) -> list[Step]:
    """Settled steps that free, or that allocate, if they are half of all."""
    settled = rank.steps[1:]
    frees = [step for step in settled if step.frees and step.allocations]
    grows = [step for step in settled if step.allocations]
    return next((of for of in (frees, grows) if len(of) >= HALF * len(settled) and of), [])


def _evidence(rank: Rank, text: str, event: str = "") -> Evidence:
    return Evidence(rank.path, f"{label(rank)}: {text}", event=event, rank=rank.rank)


def _numbers(ranks: Sequence[Rank]) -> tuple[int, ...]:
    return tuple(sorted({one.rank for one in ranks if one.rank is not None}))
