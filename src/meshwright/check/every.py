"""Every mode and every pair of modes, as layouts of few ranks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from meshwright.check.case import Case, with_micro_batches
from meshwright.check.legality import check_legal
from meshwright.spec.errors import LayoutError
from meshwright.spec.layout import CONTEXT_KINDS, MULTI_STAGE_SCHEDULES, RECOMPUTE, SCHEDULES, V_SCHEDULES, Layout
from meshwright.spec.model import Model
from meshwright.spec.notation import parse_layout

_DATA = ("ddp{n}", "zero1:{n}", "zero2:{n}", "fsdp{n}")
_TENSOR = ("tp{n}", "tp{n}:nosp")
_CONTEXT = tuple(f"cp{{n}}:{kind}" for kind in CONTEXT_KINDS)
_PIPES = tuple(
    f"pp{{n}}:{name}" + (":2" if name in MULTI_STAGE_SCHEDULES and name not in V_SCHEDULES else "")
    for name in SCHEDULES
)
_KINDS = (_DATA, _TENSOR, _CONTEXT, _PIPES)
"""What takes ranks of its own."""
_RECOMPUTE = tuple(f"ac:{kind}" for kind in RECOMPUTE if kind != "none")
_SHARDED = ("zero1:{n}", "zero2:{n}", "fsdp{n}", "fsdp{n} tp{n}", "fsdp{n} cp{n}", "fsdp{n} pp{n}")
"""What can be kept by the host: states that are sharded."""
_HYBRIDS = ("hsdp2x2", "ddp2 zero1:2", "ddp2 zero2:2")
_THREE = (
    "fsdp2 tp2 pp2:1f1b",
    "ddp2 tp2 pp2:zbvzerobubble",
    "zero2:2 tp2 pp2:interleaved1f1b:2",
    "zero1:2 cp2:allgather pp2:dualpipev",
    "ddp2 cp2:ring tp2:nosp",
    "fsdp2 cp2:ulysses tp2",
    "tp2 cp2:ring pp2:gpipe",
    "hsdp2x2 tp2",
    "hsdp2x2 cp2:ring",
    "hsdp2x2 pp2:interleavedzerobubble:2",
)
_THREE_EXPERTS = (
    "fsdp2 tp2 pp2:1f1b ep4",
    "fsdp2 cp2:ring pp2:interleavedzerobubble:2 ep2",
    "hsdp2x2 tp2 ep4",
    "hsdp2x2 pp2:dualpipev ep2",
)


def every_layout(case: Case, model: Model, ranks: int = 4) -> list[Layout]:
    """Every mode alone on 2 and on 4 ranks, every pair of them on at most 4, and three axes on 8 where there are 8.

    Only what the model and the batch allow: heads, layers and experts that divide.
    """
    texts = [*_alone(), *_pairs(), *_HYBRIDS, *_THREE]
    if model.experts is not None:
        texts += [*_with_experts(), *_THREE_EXPERTS]
    found = [layout for text in dict.fromkeys(texts) if (layout := fitted(text, case, model)) is not None]
    return [layout for layout in found if layout.devices <= ranks]


def fitted(text: str, case: Case, model: Model) -> Layout | None:
    """The layout, or None where the model or the batch does not divide like that."""
    layout = parse_layout(text)
    try:
        check_legal(case, model, layout)
    except LayoutError:
        return None
    return layout if with_micro_batches(layout, case, 2) is not None else None


def _alone() -> Iterator[str]:
    for n in (2, 4):
        for kind in _KINDS:
            yield from (text.format(n=n) for text in kind)


def _pairs() -> Iterator[str]:
    for first, second in combinations(_KINDS, 2):
        for one in first:
            yield from (f"{one} {other}".format(n=2) for other in second)
    for kind in _KINDS:
        for text in kind:
            yield from (f"{text} {again}".format(n=2) for again in _RECOMPUTE)
    yield from (f"{text} offload:optimizer".format(n=2) for text in _SHARDED)
    yield from (f"{text} offload:optimizer+parameters".format(n=2) for text in _SHARDED if "fsdp" in text)


def _with_experts() -> Iterator[str]:
    """Experts take the ranks of others: as many as there are, half of them, or both sides of a tensor split."""
    for kind in (_DATA, _TENSOR[:1], _CONTEXT):
        yield from (f"{text} ep2".format(n=2) for text in kind)
    yield from (f"{text} ep{n}".format(n=4) for text in _DATA for n in (2, 4))
    yield from (f"ddp2 {pipe} ep2".format(n=2) for pipe in _PIPES)
    yield from ("fsdp2 tp2 ep2", "fsdp2 tp2 ep4", "hsdp2x2 ep2", "hsdp2x2 ep4", "tp2 pp2:zbvzerobubble ep2")
    yield from (f"fsdp2 ep2 {more}" for more in _RECOMPUTE)
