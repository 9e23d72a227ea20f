"""From an Account to a RankRehearsal: the peak and its parts, FLOPs, what is kept, the timeline."""

from __future__ import annotations

from collections.abc import Iterable

from meshwright.rehearse.ledger import Account, Block, Event
from meshwright.rehearse.parts import ORDER, alive, kept, levels, part_of
from meshwright.rehearse.result import Instant, RankRehearsal
from meshwright.rehearse.shortened import repeats
from meshwright.rehearse.stacked import stack_of

TIMELINE = 4000
"""Points of a timeline at most."""


def summed(account: Account, steps: int, run: int, micro_batches: int, *, history: bool = False) -> RankRehearsal:
    """The numbers of an Account of `steps` steps, of whose `micro_batches` so many were `run`.

    `history`: every event, too. Rank, states and collectives are for the caller to fill in.
    """
    heights, on_host = levels(account), levels(account, host=True)
    top, host_top = (max(range(len(each)), key=each.__getitem__) for each in (heights, on_host))
    waiting: dict[str, float] = {}
    for block in alive(account, top):
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
        peak=_instant(account.events[top]),
        parts=_parts(alive(account, top)),
        host_bytes=on_host[host_top],
        host_parts=_parts(alive(account, host_top, host=True)),
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
        history=_history(account) if history else (),
        stack=stack_of(account, heights, top) if history else None,
    )


def _history(account: Account) -> tuple[tuple[int, int, str], ...]:
    """Every event on the device, with the part that its block is."""
    there = [event for event in account.events if not account.blocks[event.block].host]
    told = (f"{part_of(account.blocks[event.block])}: {_instant(event)}" for event in there)
    return tuple((event.block, event.bytes, text) for event, text in zip(there, told, strict=True))


def _parts(blocks: Iterable[Block]) -> dict[str, float]:
    """Bytes by part, of the parts that have any."""
    parts = dict.fromkeys(ORDER, 0.0)
    for block in blocks:
        parts[part_of(block)] += block.bytes
    return {name: size for name, size in parts.items() if size}


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
