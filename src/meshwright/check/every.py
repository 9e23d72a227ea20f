"""Every mode and every pair of modes, as layouts of few ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

from meshwright.check.case import Case, with_micro_batches
from meshwright.spec.errors import LayoutError
from meshwright.spec.layout import Layout
from meshwright.spec.model import Model
from meshwright.spec.notation import parse_layout

_DATA = ("ddp{n}", "zero1:{n}", "zero2:{n}", "fsdp{n}")
_MODEL = ("tp{n}", "tp{n}:nosp", "cp{n}:ring", "cp{n}:allgather", "cp{n}:ulysses")
_PIPES = (
    "pp{n}:gpipe",
    "pp{n}:1f1b",
    "pp{n}:interleaved1f1b:2",
    "pp{n}:loopedbfs:2",
    "pp{n}:interleavedzerobubble:2",
    "pp{n}:zbvzerobubble",
    "pp{n}:dualpipev",
)
_AROUND = ("ac:selective", "ac:full")
_THREE = (
    "fsdp2 tp2 pp2:1f1b",
    "ddp2 tp2 pp2:zbvzerobubble",
    "hsdp2x2 tp2",
    "hsdp2x2 cp2:ring",
    "fsdp2 cp2:ulysses tp2",
    "zero1:2 cp2:allgather pp2:dualpipev",
    "ddp2 cp2:ring tp2:nosp",
    "zero2:2 tp2 pp2:interleaved1f1b:2",
)
_EXPERTS = (
    "ddp{n} ep{n}",
    "zero1:{n} ep{n}",
    "fsdp{n} ep{n}",
    "tp{n} ep{n}",
    "cp{n}:ring ep{n}",
    "ddp{m} ep{n}",
    "fsdp{m} ep{n}",
)
_EXPERTS_THREE = ("fsdp2 tp2 ep2", "fsdp2 tp2 ep4", "hsdp2x2 ep2", "hsdp2x2 ep4", "fsdp2 pp2:1f1b ep2", "tp2 pp2:zbvzerobubble ep2",
                  "fsdp2 tp2 pp2:1f1b ep4", "fsdp2 cp2:ring pp2:interleavedzerobubble:2 ep2")  # fmt: skip


def every_layout(case: Case, model: Model, ranks: int = 4) -> list[Layout]:
    """Every mode alone on 2 and on `ranks` ranks, every pair of them on 4, and three axes on 8 where there are 8.

    Only what the model and the batch allow: heads, layers and experts that divide.
    """
    texts = [
        *_alone(2),
        *_alone(4),
        *_pairs(),
        *(f"{one} {ac}" for one in ("ddp2", "fsdp2", "tp2", "cp2:ring") for ac in _AROUND),
    ]
    texts += ["hsdp2x2", "pp2:1f1b ac:full", "pp2:zbvzerobubble ac:selective"]
    if model.experts is not None:
        texts += [text.format(n=2, m=4) for text in _EXPERTS] + [text for text in _EXPERTS_THREE if _devices(text) <= 4]
    if ranks >= 8:
        texts += list(_THREE)
        texts += [text for text in _EXPERTS_THREE if model.experts is not None and _devices(text) > 4]
    found = [layout for text in dict.fromkeys(texts) if (layout := fitted(text, case, model)) is not None]
    return [layout for layout in found if layout.devices <= ranks]


def fitted(text: str, case: Case, model: Model) -> Layout | None:
    """The layout, or None where the model does not divide like that."""
    try:
        layout = parse_layout(text)
    except LayoutError:
        return None
    t, c = layout.tensor, layout.context
    widths = [model.heads] + ([model.ffn_hidden] if model.moe_layers < model.layers else [])
    if model.experts is not None:
        widths += [model.experts.shared_ffn_hidden] + ([model.experts.ffn_hidden] if layout.expert == 1 else [])
        if model.experts.count % layout.expert:
            return None
    if any(width % t for width in widths) or (model.kv_heads % t and t % model.kv_heads):
        return None
    if layout.context_kind == "ulysses" and c > 1 and not _has_heads(model, t * c):
        return None
    if layout.stages > model.layers or case.seq_len % (t * c):
        return None
    return layout if with_micro_batches(layout, case, 2) is not None else None


def _has_heads(model: Model, ranks: int) -> bool:
    return model.heads % ranks == 0 and (model.kv_heads % ranks == 0 or ranks % model.kv_heads == 0)


def _devices(text: str) -> int:
    return parse_layout(text).devices


def _alone(n: int) -> Iterator[str]:
    for text in (*_DATA, *_MODEL, *_PIPES):
        yield text.format(n=n)


def _pairs() -> Iterator[str]:
    kinds = (_DATA, _MODEL[:2], _MODEL[2:], _PIPES)
    for first, second in combinations(kinds, 2):
        for a in first:
            for b in second:
                yield f"{a.format(n=2)} {b.format(n=2)}"


def plain(layout: Layout) -> Layout:
    """The layout with one sequence a micro-batch, which `check` replaces by what it needs."""
    return replace(layout, micro_batch=1)
