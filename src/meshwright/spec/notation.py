"""The Layout notation: read and printed here, and nowhere else. What it prints, it parses back.

A layout is a line of tokens in any order, in any case, each at most once:

| token | means |
| --- | --- |
| `ddp8` | 8 replicas, nothing sharded |
| `zero1:8` `zero2:8` `zero3:8` | 8 data-parallel ranks share optimizer states / + gradients / + parameters |
| `fsdp8` | the same as `zero3:8`, and how it is printed |
| `hsdp2x4` | 2 replicas of a 4-way fully sharded group (`ddp2 fsdp4` is refused in its favour) |
| `ddp2 zero1:4` | 2 replicas of a 4-way ZeRO-1 (or ZeRO-2) group |
| `ps8x2` `ps8x2:stale4` `ps8x2:async` | 8 workers, 2 parameter servers: in step, at most 4 steps ahead, unbounded |
| `tp4` `tp4:nosp` | tensor parallel; sequence parallel unless `nosp` |
| `cp2` `cp2:ring` `cp2:allgather` `cp2:ulysses` | context parallel; ring unless said |
| `ep8` | expert parallel, its ranks taken from the data, context and tensor ranks |
| `pp4` `pp4:1f1b` `pp4:interleaved1f1b:2` | pipeline, schedule (1f1b unless said), stages a rank |
| `stages:3-4-4-3` | layers of each stage by hand, in model order |
| `mbs2` | sequences a micro-batch |
| `ac:none` `ac:selective` `ac:full` | activation checkpointing |
| `offload:optimizer` `offload:optimizer+parameters` `offload:optimizer+nvme` | states kept by the host, or its NVMe |
| `quant:weights` `quant:gradients` `quant:weights+gradients` | ZeRO++ quantised traffic (qwZ, qgZ) |
| `hpz8` | ZeRO++ secondary shard: a second copy of the parameters over 8 ranks |

A schedule that keeps several stages on a rank has 2 unless said; `zbvzerobubble` and `dualpipev` always have 2.
Several layouts are separated by commas, and braces list alternatives: `fsdp8 pp4:{gpipe,1f1b}` is two layouts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from meshwright.spec.errors import LayoutError
from meshwright.spec.layout import Layout
from meshwright.spec.rules.shape import check_shape
from meshwright.spec.tokens import data_tokens, degree_tokens, option_tokens, read_token

MAX_LAYOUTS = 10_000
"""Layouts that one text may expand to."""

_EXAMPLES = ("ddp1", "fsdp8", "fsdp8 tp4 pp2:1f1b mbs2 ac:selective")


def parse_layout(text: str) -> Layout:
    """The Layout that one line of tokens describes.

    Raises LayoutError for an unknown, repeated, contradictory or incomplete token, with the nearest legal ones.
    """
    words = text.split()
    if not words:
        raise LayoutError("The layout is empty.", legal=_EXAMPLES)
    values: dict[str, Any] = {}
    writer: dict[str, str] = {}
    for word in words:
        fields = read_token(word)
        for name in fields:
            if name in writer:
                raise _clash(writer[name], word, words)
            writer[name] = word
        values |= fields
    _refuse_written_hybrid(values, writer)
    layout = Layout(**values)
    check_shape(layout)
    return layout


def _clash(first: str, second: str, words: Sequence[str] = ()) -> LayoutError:
    if first.lower() == second.lower():
        once = " ".join(dict.fromkeys(word.lower() for word in words))
        return LayoutError(f"The token {first!r} is repeated: each is written once.", legal=(once,))
    return LayoutError(f"The tokens {first!r} and {second!r} contradict each other.", legal=(first, second))


def _refuse_written_hybrid(values: dict[str, Any], writer: dict[str, str]) -> None:
    """A hybrid shard has one spelling, so that equal layouts print alike."""
    replicas, shards = writer.get("replicate"), writer.get("shard")
    if not replicas or not shards or replicas == shards:
        return
    if replicas.lower().startswith("ps"):
        raise _clash(replicas, shards)
    if values["zero_stage"] == 3:
        replicate, shard = values["replicate"], values["shard"]
        hybrid = f"hsdp{replicate}x{shard}" if replicate > 1 else f"fsdp{shard}"
        raise LayoutError(f"Replicas of a fully sharded group are not written {replicas} {shards}.", legal=(hybrid,))


def format_layout(layout: Layout) -> str:
    """The canonical text of a Layout; `parse_layout` reads that of a legal Layout back to an equal one."""
    degrees = data_tokens(layout) + degree_tokens(layout)
    return " ".join((degrees or ["ddp1"]) + option_tokens(layout))


def parse_layouts(text: str) -> tuple[Layout, ...]:
    """The Layouts of a comma-separated list, braces expanded from left to right; equal ones are kept once.

    Raises LayoutError as `parse_layout` does, for unbalanced braces and for more than MAX_LAYOUTS layouts.
    """
    parts: list[str] = []
    for piece in _split_commas(text):
        parts += _expand(piece, MAX_LAYOUTS - len(parts))
    return tuple(dict.fromkeys(parse_layout(part) for part in parts))


def _split_commas(text: str) -> list[str]:
    """Pieces between the commas that are outside braces."""
    pieces, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "{") - (letter == "}")
        if not 0 <= depth <= 1:
            raise LayoutError("Braces in the list of layouts do not match, or are nested.", legal=("pp4:{gpipe,1f1b}",))
        if letter == "," and depth == 0:
            pieces.append(text[start:at])
            start = at + 1
    if depth:
        raise LayoutError("A brace in the list of layouts is never closed.", legal=("pp4:{gpipe,1f1b}",))
    return [*pieces, text[start:]]


def _expand(text: str, room: int) -> list[str]:
    """Every choice of one alternative from each pair of braces; at most `room` of them."""
    texts = [""]
    for at, piece in enumerate(re.split(r"[{}]", text)):
        alternatives = piece.split(",") if at % 2 else [piece]
        if len(texts) * len(alternatives) > room:
            raise LayoutError(f"The list expands to more than {MAX_LAYOUTS:,} layouts.")
        texts = [head + tail for head in texts for tail in alternatives]
    return texts
