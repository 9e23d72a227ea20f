"""Rules that need nothing but the layout: numbers in range, and fields that go together.

Offload and ZeRO++ conditions are DeepSpeed's (its configuration pages: `offload_optimizer` from stage 1,
`offload_param` and NVMe with stage 3; ZeRO++, arXiv:2306.10209, builds on stage 3). Stages a rank are those that
PyTorch 2.13's schedule classes take.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np

from meshwright.spec.columns import LayoutColumns, stack
from meshwright.spec.errors import LayoutError
from meshwright.spec.layout import (
    CONTEXT_KINDS,
    MAX_DEGREE,
    MULTI_STAGE_SCHEDULES,
    OFFLOADS,
    QUANTIZED,
    RECOMPUTE,
    SCHEDULES,
    V_CODES,
    Layout,
)
from meshwright.spec.rules.rule import Refusal, Rule, divisors, nearest

MAX_DEVICES = 10_000_000

_FIRST_MULTI = SCHEDULES.index(MULTI_STAGE_SCHEDULES[0])
_LEAST = {
    "replicate": 1,
    "shard": 1,
    "context": 1,
    "tensor": 1,
    "expert": 1,
    "pipeline": 1,
    "virtual_stages": 1,
    "micro_batch": 1,
    "secondary_shard": 0,
    "servers": 0,
    "staleness": -1,
    "zero_stage": 0,
}


@dataclass(frozen=True, slots=True)
class ShapeRule:
    """A rule about a layout alone."""

    reason: str
    broken: Callable[[LayoutColumns], Any]
    explain: Callable[[Layout], Refusal]

    def for_jobs(self) -> Rule:
        """The same as a rule about a job's layout."""
        return Rule(self.reason, lambda job, c: self.broken(c), lambda job, layout: self.explain(layout))


def check_names(layout: Layout) -> None:
    """Raises LayoutError when a name in the layout is unknown, or a tuple of names is not in canonical order."""
    choices: dict[str, tuple[str, ...]] = {
        "schedule": SCHEDULES,
        "recompute": RECOMPUTE,
        "context_kind": CONTEXT_KINDS,
    }
    for name, legal in choices.items():
        value = getattr(layout, name)
        if value not in legal:
            raise LayoutError(f"Unknown {name} {str(value)[:40]!r}.", get_close_matches(str(value), legal) or legal)
    for name, legal in (("offload", OFFLOADS), ("quantized", QUANTIZED)):
        value = getattr(layout, name)
        if value != tuple(item for item in legal if item in value):
            raise LayoutError(f"{name} is {value!r}: unknown, repeated or out of order.", legal=legal)


def check_shape(layout: Layout) -> None:
    """Raises LayoutError when the layout contradicts itself, whatever the model and the cluster."""
    check_names(layout)
    row = stack([layout])
    for rule in SHAPE_RULES:
        if np.any(rule.broken(row)):
            message, legal = rule.explain(layout)
            raise LayoutError(message, tuple(legal))


def _out_of_range(c: LayoutColumns) -> Any:
    broken: Any = c.zero_stage > 3
    for name, least in _LEAST.items():
        value = getattr(c, name)
        broken = broken | (value < least) | (value > MAX_DEGREE)
    return broken


def _explain_range(layout: Layout) -> Refusal:
    most = {"zero_stage": 3}
    for name, least in _LEAST.items():
        value, top = getattr(layout, name), most.get(name, MAX_DEGREE)
        if not least <= value <= top:
            return f"{name} is {value}.", (f"{least} to {top}",)
    raise AssertionError("no field is out of range")


def _too_many(c: LayoutColumns) -> Any:
    # In floating point: the product of degrees that are each in range can overflow an integer.
    product: Any = 1.0
    for degree in (c.replicate, c.shard, c.context, c.tensor, c.pipeline):
        product = product * degree
    return product > MAX_DEVICES


def _served_otherwise(c: LayoutColumns) -> Any:
    other = (c.shard > 1) | (c.zero_stage > 0) | (c.context > 1) | (c.tensor > 1) | (c.pipeline > 1) | (c.expert > 1)
    return (c.servers > 0) & other


def _offloads(c: LayoutColumns) -> Any:
    return (c.offload_optimizer + c.offload_parameters + c.offload_nvme) > 0


def _nvme_alone(c: LayoutColumns) -> Any:
    return (c.offload_nvme > 0) & (c.offload_optimizer + c.offload_parameters == 0)


def _secondary_misfits(c: LayoutColumns) -> Any:
    # hpz1 would be a whole copy on every rank: ZeRO-2 under another name.
    return (c.secondary_shard > 0) & ((c.secondary_shard == 1) | (c.shard % np.maximum(c.secondary_shard, 1) != 0))


def _explain_secondary(layout: Layout) -> Refusal:
    fitting = [d for d in divisors(layout.shard) if d > 1]
    legal = [f"hpz{d}" for d in nearest(fitting, layout.secondary_shard)]
    return f"hpz{layout.secondary_shard} does not split {layout.shard} sharded ranks into equal groups.", legal


def _explain_v(layout: Layout) -> Refusal:
    text = f"{layout.schedule} keeps exactly 2 stages a rank, not {layout.virtual_stages}."
    return text, (f"pp{layout.pipeline}:{layout.schedule}:2",)


def _explain_single(layout: Layout) -> Refusal:
    text = f"{layout.schedule} keeps one stage a rank, not {layout.virtual_stages}."
    legal = [f"pp{layout.pipeline}:{layout.schedule}"]
    if layout.pipeline > 1:
        legal.append(f"pp{layout.pipeline}:interleaved1f1b:{layout.virtual_stages}")
    return text, legal


def by_hand(c: LayoutColumns, broken: Callable[[tuple[int, ...], int], bool]) -> Any:
    """`broken` of each row's stages by hand and number of stages; False where stages are balanced."""
    layers = c.stage_layers
    if isinstance(layers, tuple):
        if not layers:
            return False
        layers = np.array([layers, None], dtype=object)[:1]
    test = np.frompyfunc(lambda listed, stages: bool(listed) and broken(listed, int(stages)), 2, 1)
    return np.asarray(test(layers, c.stages), dtype=bool)


def _wrong_count(layers: tuple[int, ...], stages: int) -> bool:
    return len(layers) != stages


def _hollow(layers: tuple[int, ...], stages: int) -> bool:
    # The first stage may hold the embedding alone, the last the head alone.
    return min(layers) < 0 or max(layers) > MAX_DEGREE or 0 in layers[1:-1] or not any(layers)


def _written(layout: Layout) -> str:
    return "stages:" + "-".join(map(str, layout.stage_layers))


def _explain_count(layout: Layout) -> Refusal:
    """As many pipeline ranks as the stages need, or as many stages as the layout has."""
    listed, layers, ranks = len(layout.stage_layers), sum(layout.stage_layers), layout.pipeline
    name, v = layout.schedule, layout.virtual_stages
    plural = "" if layout.stages == 1 else "s"
    text = (
        f"{_written(layout)} lists {listed} stages, the layout has {layout.stages} stage{plural} for {layers} layers."
    )
    legal = []
    if listed > 1 and listed % v == 0:
        count = f":{v}" if v > 1 else ""
        legal.append(f"pp{listed // v}:{name}{count} {_written(layout)}")
    if ranks > 1 and layers >= layout.stages:
        each, more = divmod(layers, layout.stages)
        even = [each + 1] * more + [each] * (layout.stages - more)
        legal.append("stages:" + "-".join(map(str, even)))
    return text, [*legal, "no stages"]


SHAPE_RULES: tuple[ShapeRule, ...] = (
    ShapeRule("a degree is out of range", _out_of_range, _explain_range),
    ShapeRule(
        f"more than {MAX_DEVICES:,} devices",
        _too_many,
        lambda layout: (f"{layout} needs more than {MAX_DEVICES:,} devices.", ()),
    ),
    ShapeRule(
        "sharded ranks that share nothing",
        lambda c: (c.shard > 1) & (c.zero_stage == 0),
        lambda layout: (
            f"{layout.shard} sharded ranks must share something.",
            (f"ddp{layout.shard}", f"zero1:{layout.shard}", f"zero2:{layout.shard}", f"fsdp{layout.shard}"),
        ),
    ),
    ShapeRule(
        "parameter servers take plain replicas only",
        _served_otherwise,
        lambda layout: (
            "Parameter servers take plain replicas: nothing sharded, no other axis.",
            (f"ps{layout.replicate}x{layout.servers}",),
        ),
    ),
    ShapeRule(
        "staleness without parameter servers",
        lambda c: (c.servers == 0) & (c.staleness != 0),
        lambda layout: (
            f"staleness {layout.staleness} needs parameter servers.",
            (f"ps{layout.replicate}x1:stale{max(layout.staleness, 1)}", "staleness 0"),
        ),
    ),
    ShapeRule(
        "ZeRO++ without ZeRO-3",
        lambda c: (c.quantized_weights + c.quantized_gradients + c.secondary_shard > 0) & (c.zero_stage != 3),
        lambda layout: ("ZeRO++ (quant, hpz) needs sharded parameters.", (f"fsdp{layout.data}",)),
    ),
    ShapeRule("the secondary shard does not divide the shard", _secondary_misfits, _explain_secondary),
    ShapeRule(
        "offload without a sharded optimizer",
        lambda c: _offloads(c) & (c.zero_stage == 0),
        lambda layout: (
            "Offload needs ZeRO: unsharded replicas would each keep a whole copy in the host.",
            (f"zero1:{layout.data}", f"zero2:{layout.data}", f"fsdp{layout.data}"),
        ),
    ),
    ShapeRule(
        "parameters or NVMe offloaded without ZeRO-3",
        lambda c: ((c.offload_parameters > 0) | (c.offload_nvme > 0)) & (c.zero_stage != 3),
        lambda layout: (
            "Only ZeRO-3 offloads parameters, or offloads to NVMe.",
            (f"fsdp{layout.data}", "offload:optimizer"),
        ),
    ),
    ShapeRule(
        "NVMe named without what is offloaded to it",
        _nvme_alone,
        lambda layout: (
            "offload:nvme does not say what goes there.",
            ("offload:optimizer+nvme", "offload:parameters+nvme", "offload:optimizer+parameters+nvme"),
        ),
    ),
    ShapeRule(
        "several stages a rank under a one-stage schedule",
        lambda c: (c.schedule < _FIRST_MULTI) & (c.virtual_stages != 1),
        _explain_single,
    ),
    ShapeRule(
        "zbvzerobubble and dualpipev keep exactly 2 stages a rank",
        lambda c: np.isin(c.schedule, V_CODES) & (c.virtual_stages != 2),
        _explain_v,
    ),
    ShapeRule(
        "a multi-stage schedule on one pipeline rank",
        lambda c: (c.schedule >= _FIRST_MULTI) & (c.pipeline == 1),
        lambda layout: (f"{layout.schedule} on one pipeline rank has nothing to overlap.", ("pp1:1f1b", "pp1:gpipe")),
    ),
    ShapeRule(
        "stages by hand differ in number from the stages",
        lambda c: by_hand(c, _wrong_count),
        _explain_count,
    ),
    ShapeRule(
        "an inner stage without layers",
        lambda c: by_hand(c, _hollow),
        lambda layout: (
            f"{_written(layout)}: only the first and the last stage may have no layer (embedding or head alone).",
            ("1 or more in each inner stage",),
        ),
    ),
)
