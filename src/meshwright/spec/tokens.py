"""One token of the Layout notation to the Layout fields that it sets.

`notation` documents the tokens and joins them to a Layout; here each has a pattern, the forms to show when it is
misspelt, and a reader.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from meshwright.spec.errors import LayoutError
from meshwright.spec.layout import (
    CONTEXT_KINDS,
    MAX_DEGREE,
    MULTI_STAGE_SCHEDULES,
    OFFLOADS,
    QUANTIZED,
    RECOMPUTE,
    SCHEDULES,
    V_SCHEDULES,
    Layout,
)

Fields = dict[str, Any]
_NUMBER = "([0-9]+)"


@dataclass(frozen=True, slots=True)
class Token:
    """How one kind of token is written and read."""

    head: str
    """What it begins with."""
    pattern: re.Pattern[str]
    forms: tuple[str, ...]
    """Legal spellings to show, simplest first."""
    read: Callable[..., Fields]
    """From the pattern's groups (None where absent) to Layout fields."""


def read_token(word: str) -> Fields:
    """The Layout fields that one token sets.

    Raises LayoutError with the nearest legal spellings when it cannot be read.
    """
    text = word.lower()
    token = _find(text)
    if token is None:
        raise LayoutError(f"Unknown token {_shown(word)} in the layout.", legal=_nearest(text))
    match = token.pattern.fullmatch(text)
    if match is None:
        raise LayoutError(f"The token {_shown(word)} cannot be read.", legal=token.forms)
    return token.read(word, *match.groups())


def _find(text: str) -> Token | None:
    """The kind of token that `text` is, or was meant to be: the longest head that it begins with."""
    heads = [t for t in TOKENS if re.match(re.escape(t.head) + r"(?![a-z])", text)]
    return max(heads, key=lambda t: len(t.head), default=None)


def _nearest(text: str) -> tuple[str, ...]:
    """Legal tokens that look like `text`, with its own numbers where they can be kept."""
    head = re.match(r"[a-z]*", text)
    letters = head.group() if head else ""
    names = {t.head: t for t in TOKENS}
    close = get_close_matches(letters, names, n=3, cutoff=0.5)
    if not close:
        return tuple(t.forms[0] for t in TOKENS)
    kept = []
    for name in close:
        candidate = name + text[len(letters) :]
        kept.append(candidate if names[name].pattern.fullmatch(candidate) else names[name].forms[0])
    return tuple(kept)


def _shown(word: str) -> str:
    """A token as it is quoted in a message: never longer than a line."""
    return repr(word if len(word) <= 40 else word[:37] + "...")


def _degree(word: str, digits: str, least: int = 1) -> int:
    """The number that `digits` spell, between `least` and MAX_DEGREE."""
    number = int(digits) if len(digits.lstrip("0")) <= len(str(MAX_DEGREE)) else MAX_DEGREE + 1
    if not least <= number <= MAX_DEGREE:
        raise LayoutError(f"The number in {_shown(word)} is out of range.", legal=(f"{least} to {MAX_DEGREE}",))
    return number


def _choice(word: str, name: str, names: tuple[str, ...]) -> str:
    """`name` if it is one of `names`."""
    if name not in names:
        close = get_close_matches(name, names, n=3, cutoff=0.5)
        raise LayoutError(f"Unknown {name[:40]!r} in {_shown(word)}.", legal=tuple(close) or names)
    return name


def _several(word: str, text: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Names joined by `+`, each once, in canonical order."""
    chosen = [_choice(word, part, names) for part in text.split("+")]
    if len(set(chosen)) < len(chosen):
        raise LayoutError(f"{_shown(word)} names a thing twice.", legal=("+".join(dict.fromkeys(chosen)),))
    return tuple(name for name in names if name in chosen)


def _ddp(word: str, degree: str) -> Fields:
    return {"replicate": _degree(word, degree)}


def _zero(word: str, stage: str, degree: str) -> Fields:
    return {"shard": _degree(word, degree), "zero_stage": int(stage)}


def _fsdp(word: str, degree: str) -> Fields:
    return {"shard": _degree(word, degree), "zero_stage": 3}


def _hsdp(word: str, replicas: str, degree: str) -> Fields:
    return {"replicate": _degree(word, replicas), "shard": _degree(word, degree), "zero_stage": 3}


def _ps(word: str, workers: str, servers: str, stale: str | None, unbounded: str | None) -> Fields:
    staleness = -1 if unbounded else _degree(word, stale, least=0) if stale else 0
    return {"replicate": _degree(word, workers), "servers": _degree(word, servers), "staleness": staleness}


def _tp(word: str, degree: str, nosp: str | None) -> Fields:
    return {"tensor": _degree(word, degree), "sequence_parallel": nosp is None}


def _cp(word: str, degree: str, kind: str | None) -> Fields:
    return {"context": _degree(word, degree), "context_kind": _choice(word, kind or CONTEXT_KINDS[0], CONTEXT_KINDS)}


def _ep(word: str, degree: str) -> Fields:
    return {"expert": _degree(word, degree)}


def _pp(word: str, degree: str, schedule: str | None, stages: str | None) -> Fields:
    name = _choice(word, schedule or "1f1b", SCHEDULES)
    usual = 2 if name in MULTI_STAGE_SCHEDULES else 1
    return {
        "pipeline": _degree(word, degree),
        "schedule": name,
        "virtual_stages": _degree(word, stages) if stages else usual,
    }


def _stages(word: str, layers: str) -> Fields:
    return {"stage_layers": tuple(_degree(word, n, least=0) for n in layers.split("-"))}


def _mbs(word: str, size: str) -> Fields:
    return {"micro_batch": _degree(word, size)}


def _ac(word: str, kind: str) -> Fields:
    return {"recompute": _choice(word, kind, RECOMPUTE)}


def _offload(word: str, what: str) -> Fields:
    return {"offload": _several(word, what, OFFLOADS)}


def _quant(word: str, what: str) -> Fields:
    return {"quantized": _several(word, what, QUANTIZED)}


def _hpz(word: str, degree: str) -> Fields:
    return {"secondary_shard": _degree(word, degree)}


def _token(head: str, pattern: str, forms: str, read: Callable[..., Fields]) -> Token:
    return Token(head, re.compile(pattern.replace("N", _NUMBER)), tuple(forms.split()), read)


TOKENS: tuple[Token, ...] = (
    _token("ddp", "ddpN", "ddp8", _ddp),
    _token("zero", "zero([123]):N", "zero1:8 zero2:8 zero3:8", _zero),
    _token("fsdp", "fsdpN", "fsdp8", _fsdp),
    _token("hsdp", "hsdpNxN", "hsdp2x4", _hsdp),
    _token("tp", "tpN(:nosp)?", "tp4 tp4:nosp", _tp),
    _token("cp", "cpN(?::([a-z]+))?", "cp2 cp2:ring cp2:allgather cp2:ulysses", _cp),
    _token("ep", "epN", "ep8", _ep),
    _token("pp", "ppN(?::([a-z0-9]+)(?::N)?)?", "pp4 pp4:1f1b pp4:interleaved1f1b:2", _pp),
    _token("stages", "stages:([0-9]+(?:-[0-9]+)*)", "stages:3-4-4-3", _stages),
    _token("mbs", "mbsN", "mbs2", _mbs),
    _token("ac", "ac:([a-z]+)", "ac:none ac:selective ac:full", _ac),
    _token("offload", r"offload:([a-z]+(?:\+[a-z]+)*)", "offload:optimizer offload:optimizer+parameters", _offload),
    _token("quant", r"quant:([a-z]+(?:\+[a-z]+)*)", "quant:weights quant:gradients quant:weights+gradients", _quant),
    _token("hpz", "hpzN", "hpz8", _hpz),
    _token("ps", "psNxN(?::(?:staleN|(async)))?", "ps8x2 ps8x2:stale4 ps8x2:async", _ps),
)


def data_tokens(layout: Layout) -> list[str]:
    """How the data-parallel ranks are written; empty for one plain rank."""
    replicate, shard, stage = layout.replicate, layout.shard, layout.zero_stage
    if layout.servers:
        steps = {0: "", -1: ":async"}.get(layout.staleness, f":stale{layout.staleness}")
        return [f"ps{replicate}x{layout.servers}{steps}"]
    if stage == 3:
        return [f"fsdp{shard}" if replicate == 1 else f"hsdp{replicate}x{shard}"]
    replicas = [f"ddp{replicate}"] if replicate > 1 else []
    return replicas + ([f"zero{stage}:{shard}"] if stage or shard > 1 else [])


def degree_tokens(layout: Layout) -> list[str]:
    """The other degrees: what differs from a plain rank."""
    tokens = []
    if layout.tensor != 1 or not layout.sequence_parallel:
        tokens.append(f"tp{layout.tensor}" + ("" if layout.sequence_parallel else ":nosp"))
    if layout.context != 1 or layout.context_kind != "ring":
        tokens.append(f"cp{layout.context}" + ("" if layout.context_kind == "ring" else f":{layout.context_kind}"))
    if layout.expert != 1:
        tokens.append(f"ep{layout.expert}")
    if (layout.pipeline, layout.schedule, layout.virtual_stages) != (1, "1f1b", 1):
        # Said where it can be chosen, so that a reader need not know what is usual.
        only = 2 if layout.schedule in V_SCHEDULES else 1 if layout.schedule not in MULTI_STAGE_SCHEDULES else None
        count = "" if layout.virtual_stages == only else f":{layout.virtual_stages}"
        tokens.append(f"pp{layout.pipeline}:{layout.schedule}{count}")
    return tokens


def option_tokens(layout: Layout) -> list[str]:
    """Stages by hand, micro-batch, recomputation, offload and ZeRO++: what differs from the default."""
    written = {
        "stages:" + "-".join(map(str, layout.stage_layers)): layout.stage_layers,
        f"mbs{layout.micro_batch}": layout.micro_batch != 1,
        f"ac:{layout.recompute}": layout.recompute != "none",
        "offload:" + "+".join(layout.offload): layout.offload,
        "quant:" + "+".join(layout.quantized): layout.quantized,
        f"hpz{layout.secondary_shard}": layout.secondary_shard,
    }
    return [token for token, wanted in written.items() if wanted]
