"""From an Account to a RankRehearsal: the peak and its parts, FLOPs, what is kept, the timeline."""

from __future__ import annotations

from dataclasses import replace

from meshwright.rehearse.ledger import Account, Event
from meshwright.rehearse.parts import ORDER, alive, kept, levels, part_of
from meshwright.rehearse.result import Instant, RankRehearsal
from meshwright.rehearse.shortened import repeats

TIMELINE = 4000
"""Points of a timeline at most."""


def summed(account: Account, steps: int, run: int, micro_batches: int) -> RankRehearsal:
    """The numbers of an Account of `steps` steps, of whose `micro_batches` so many were `run`.

    Rank, states and collectives are for the caller to fill in.
    """
    heights = levels(account)
    top = max(range(len(heights)), key=heights.__getitem__)
    event = account.events[top]
    parts = dict.fromkeys(ORDER, 0.0)
    waiting: dict[str, float] = {}
    for block in alive(account, top):
        part = part_of(block)
        parts[part] += block.bytes
        if kept(block):
            waiting[block.module] = waiting.get(block.module, 0.0) + block.bytes
    flops: dict[str, dict[str, float]] = {}
    by_module: dict[str, float] = {}
    for (number, phase, module, kind), work in account.work.items():
        if number == steps:
            done = work * repeats(phase, run, micro_batches)
            of_phase = flops.setdefault(phase.name, {})
            of_phase[kind] = of_phase.get(kind, 0.0) + done
            by_module[module] = by_module.get(module, 0.0) + done
    peaks = [0.0] * (steps + 1)
    for event_, height in zip(account.events, heights, strict=True):
        peaks[event_.step] = max(peaks[event_.step], height)
    return RankRehearsal(
        rank=0,
        pipeline_rank=0,
        stages=(0,),
        peak_bytes=heights[top],
        peak=_instant(event),
        parts={name: size for name, size in parts.items() if size},
        activations=dict(sorted(waiting.items(), key=lambda item: -item[1])),
        states={},
        flops=flops,
        module_flops=by_module,
        traffic=(),
        collectives=(),
        kept=_kept(account, steps),
        timeline=_timeline(account, heights),
        operations=account.operations,
        seconds=0.0,
        step_peaks=tuple(peaks[1:]),
    )


def with_more(found: RankRehearsal, part: str, size: float) -> RankRehearsal:
    """`found` with so many bytes more of a part at all times."""
    if not size:
        return found
    return replace(
        found,
        peak_bytes=found.peak_bytes + size,
        parts={**found.parts, part: found.parts.get(part, 0.0) + size},
        step_peaks=tuple(peak + size for peak in found.step_peaks),
        timeline=tuple((at, height + size, what) for at, height, what in found.timeline),
    )


def history_of(account: Account) -> tuple[tuple[int, int, str], ...]:
    """Every event, with the part that its block is."""
    told = (f"{part_of(account.blocks[event.block])}: {_instant(event)}" for event in account.events)
    return tuple((event.block, event.bytes, text) for event, text in zip(account.events, told, strict=True))


def _instant(event: Event) -> Instant:
    return Instant(event.step, str(event.phase), event.module)


def _kept(account: Account, steps: int) -> dict[str, float]:
    """Bytes that the first micro-batch's forward of the last step keeps, by module."""
    found: dict[str, float] = {}
    for block in account.blocks:
        if block.step == steps and kept(block) and not block.phase.micro_batch:
            found[block.module] = found.get(block.module, 0.0) + block.bytes
    return found


def _timeline(account: Account, heights: list[float]) -> tuple[tuple[int, float, str], ...]:
    """Of runs of events the highest one, so many that a chart can show them."""
    each = max(len(heights) // TIMELINE, 1)
    points = []
    for start in range(0, len(heights), each):
        at = max(range(start, min(start + each, len(heights))), key=heights.__getitem__)
        event = account.events[at]
        points.append((at, heights[at], str(_instant(event))))
    return tuple(points)
