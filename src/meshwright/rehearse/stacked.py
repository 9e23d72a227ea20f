"""Stacked: the bytes of each part over the step that has the peak, so many moments that a chart can show them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from meshwright.rehearse.ledger import Account, Event
from meshwright.rehearse.parts import ORDER, part_of
from meshwright.rehearse.result import Span, Stack

MOMENTS = 400
"""Of a chart at most."""


def stack_of(account: Account, heights: Sequence[float], top: int) -> Stack:
    """Of runs of the device's events in the step of event `top` the highest one, with what its bytes are then.

    `heights`: bytes on the device after each event; `top` is the highest.
    """
    step = account.events[top].step
    there = [i for i, event in enumerate(account.events) if not account.blocks[event.block].host]
    before = [i for i in there if account.events[i].step < step]
    inside = [i for i in there if account.events[i].step == step]
    alive = dict.fromkeys(ORDER, 0.0)
    for i in before:
        _add(account, alive, account.events[i])
    each = max(-(-len(inside) // MOMENTS), 1)
    moments: list[tuple[int, int, dict[str, float]]] = []
    for start in range(0, len(inside), each):
        highest = -1.0
        for place in range(start, min(start + each, len(inside))):
            i = inside[place]
            _add(account, alive, account.events[i])
            if heights[i] > highest:
                highest, moment = heights[i], (start, i, dict(alive))
        moments.append(moment)
    used = [part for part in ORDER if any(parts[part] for _, _, parts in moments)]
    return Stack(
        step=step,
        events=len(inside),
        at=tuple(start for start, _, _ in moments),
        peak=next(place for place, (_, i, _) in enumerate(moments) if i == top),
        where=tuple(_where(account.events[i]) for _, i, _ in moments),
        parts={part: tuple(parts[part] for _, _, parts in moments) for part in used},
        spans=_spans([account.events[i] for i in inside]),
    )


def _add(account: Account, alive: dict[str, float], event: Event) -> None:
    alive[part_of(account.blocks[event.block])] += event.bytes


def _where(event: Event) -> str:
    return str(event.phase) + (f", {event.module}" if event.module else "")


def _spans(events: Sequence[Event]) -> tuple[Span, ...]:
    """The phases in their order; between them nothing has a name."""
    spans, start = [], 0
    for phase, run in groupby(event.phase for event in events):
        end = start + sum(1 for _ in run)
        if phase.name:
            spans.append(Span(start, end, phase.name, phase.stage, phase.micro_batch))
        start = end
    return tuple(spans)
