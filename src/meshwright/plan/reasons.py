"""Reasons: why each layout of the space that is not shown lost, in families, with the numbers of one member.

A family is all layouts with the same degrees and ZeRO stage. One that fits lost by the part of the step that its
fastest member spends more on than the best layout does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from meshwright.cost.result import AT_RISK, Estimate
from meshwright.cost.step import step_time
from meshwright.cost.verdict import RISK_SHARE
from meshwright.plan.candidates import ZERO_STAGES, Candidates
from meshwright.plan.question import Question
from meshwright.plan.rank import TIE
from meshwright.plan.result import Rejected
from meshwright.plan.scan import Scan
from meshwright.plan.words import longer
from meshwright.spec.layout import Layout
from meshwright.spec.notation import format_layout
from meshwright.spec.units import duration, gib

STAGES = ("unsharded", "ZeRO-1", "ZeRO-2", "ZeRO-3")
COMPUTE = ("forward", "backward", "head and embedding")
"""Parts that differ between layouts only by how well the devices are used."""
UNTOLD = ("fixed",)


def reasons(question: Question, found: Scan, shown: Sequence[Estimate], families: Sequence[int]) -> list[Rejected]:
    """Every layout of the scan but the `shown` ones under one reason; `families` are those of the shown."""
    lost: list[Rejected] = []
    if shown:
        lost += _same_degrees(found, shown[0], families)
        lost += _leaner(found, shown[0], families) if question.by_memory else _slower(question, found, shown, families)
    lost += _too_big(question, found)
    lost += [Rejected(illegal.reason, illegal.count, format_layout(illegal.example)) for illegal in found.illegal]
    return [reason for reason in lost if reason.count]


def nothing_fits(question: Question, found: Scan) -> Rejected:
    """Why fewer devices will not do: one reason for a whole scan."""
    devices = f"{question.devices} devices" if question.devices > 1 else "1 device"
    if not len(found.too_big):
        illegal = found.illegal[0]
        return Rejected(f"{devices}: {illegal.reason}", found.searched, format_layout(illegal.example))
    leanest = int(np.argmin(found.too_big.reserved))
    text = f"{devices}: nothing fits, the leanest layout needs {_need(question, found, leanest)}"
    return Rejected(text, found.searched, format_layout(found.too_big.layout(leanest)))


def _need(question: Question, found: Scan, index: int) -> str:
    """What a layout that does not fit needs."""
    capacity = question.cluster.device.memory_bytes
    need = float(found.too_big.reserved[index])
    if need <= capacity:
        return f"more than the {gib(question.cluster.host_memory_bytes)} of a host"
    return f"{gib(need)}, a device has {gib(capacity)}"


def _too_big(question: Question, found: Scan) -> list[Rejected]:
    """For each ZeRO stage the layouts that do not fit, with the leanest if none does, else with the simplest."""
    c = found.too_big.columns
    simple = np.asarray(c.tensor * c.context * c.pipeline * c.expert)
    lost = []
    for stage, name in enumerate(STAGES):
        count = int(found.too_big_by_family[stage::ZERO_STAGES].sum())
        rows = np.flatnonzero(np.asarray(c.zero_stage) == stage)
        if not count or not rows.size:
            continue
        none = not found.feasible_by_family[stage::ZERO_STAGES].any()
        keys = (simple[rows], found.too_big.reserved[rows])
        index = int(rows[np.lexsort(keys if none else keys[::-1])[0]])
        which = f"no {name} layout fits: the leanest" if none else f"{name} layouts that do not fit: the simplest"
        text = f"{which} needs {_need(question, found, index)}"
        lost.append(Rejected(text, count, format_layout(found.too_big.layout(index))))
    return lost


def _same_degrees(found: Scan, best: Estimate, families: Sequence[int]) -> list[Rejected]:
    """The variants of the families that are shown."""
    count = sum(int(found.feasible_by_family[family]) for family in set(families)) - len(families)
    text = "the degrees shown with another micro-batch, schedule or recomputation"
    return [Rejected(text, count, format_layout(best.layout))]


def _leaner(found: Scan, best: Estimate, families: Sequence[int]) -> list[Rejected]:
    """What other families need at least, by ZeRO stage."""
    lost = []
    family = found.kept.family
    for stage, name in enumerate(STAGES):
        others = [f for f in range(stage, found.feasible_by_family.size, ZERO_STAGES) if f not in set(families)]
        count = int(found.feasible_by_family[others].sum())
        rows = np.flatnonzero(np.isin(family, others))
        if not count or not rows.size:
            continue
        index = int(rows[np.argmin(found.kept.reserved[rows])])
        need = float(found.kept.reserved[index])
        text = f"{name}: needs {gib(need)}, {gib(need - best.memory.reserved_bytes)} more"
        lost.append(Rejected(text, count, format_layout(found.kept.layout(index))))
    return lost


@dataclass(frozen=True, slots=True)
class _Loser:
    """The fastest member of a family, and the part that it lost by."""

    layout: Layout
    seconds: float
    reserved: float
    part: str
    """AT_RISK if no member fits safely."""
    part_seconds: float
    count: int
    """Layouts of the family that fit."""

    def kind(self, node: int) -> tuple[object, ...]:
        """Losers of one kind share a line."""
        if self.part == "data communication":
            return self.part, self.layout.zero_stage
        if self.part in ("tensor communication", "expert communication"):
            return self.part, getattr(self.layout, self.part.split()[0]) > node
        return (self.part,)


def _slower(question: Question, found: Scan, shown: Sequence[Estimate], families: Sequence[int]) -> list[Rejected]:
    """Families that fit and are slower, by kind; the fastest of each kind speaks for it."""
    others = found.fastest.take(~np.isin(found.fastest.family, families))
    node = question.cluster.devices_per_node
    kinds: dict[tuple[object, ...], list[_Loser]] = {}
    for loser in _losers(question, found, others, shown[0]):
        kinds.setdefault(loser.kind(node), []).append(loser)
    lines = []
    for members in kinds.values():
        first = min(members, key=lambda loser: loser.seconds)
        text = _told(first, shown[0], node)
        count = sum(loser.count for loser in members)
        lines.append((first.seconds, Rejected(text, count, format_layout(first.layout))))
    return [line for _, line in sorted(lines, key=lambda pair: pair[0])]


def _losers(question: Question, found: Scan, others: Candidates, best: Estimate) -> list[_Loser]:
    if not len(others):
        return []
    q = question
    step = step_time(q.model, q.cluster, q.workload, others.columns, q.software)
    parts = _merged({name: np.broadcast_to(value, len(others)) for name, value in step.parts.items()})
    usual = _merged(best.time)
    names = list(parts)
    excess = np.stack([parts[name] - usual[name] for name in names])
    most = np.argmax(excess, axis=0)
    risky = others.reserved > RISK_SHARE * q.cluster.device.memory_bytes
    return [
        _Loser(
            layout=others.layout(index),
            seconds=float(others.seconds[index]),
            reserved=float(others.reserved[index]),
            part=AT_RISK if risky[index] else names[most[index]],
            part_seconds=float(parts[names[most[index]]][index]),
            count=int(found.feasible_by_family[others.family[index]]),
        )
        for index in range(len(others))
    ]


def _merged(parts: Mapping[str, np.ndarray] | Mapping[str, float]) -> dict[str, np.ndarray]:
    """Parts of a step with all compute as one."""
    compute = sum(np.asarray(parts[name]) for name in COMPUTE)
    rest = {name: np.asarray(value) for name, value in parts.items() if name not in (*COMPUTE, *UNTOLD)}
    return {"compute": np.asarray(compute)} | rest


def _told(loser: _Loser, best: Estimate, node: int) -> str:
    """`tp16 crosses nodes: tensor communication 4.1 s of 9.8 s, 43.0 % slower`."""
    if loser.part == AT_RISK:
        return f"at risk: {gib(loser.reserved)} of {gib(best.memory.capacity_bytes)}, {duration(loser.seconds)} a step"
    times = loser.seconds / best.step_seconds
    if 1 - TIE <= times <= 1:
        return f"{duration(loser.seconds)} at best: less than {TIE:.0%} faster, and less simple"
    against = longer(times) if times > 1 else "faster in closed form only: those simulated were not"
    whole = f"of {duration(loser.seconds)}" if loser.part != "compute" else f"instead of {duration(_compute(best))}"
    return f"{_what(loser, node)}: {loser.part} {duration(loser.part_seconds)} {whole}; {against}"


def _compute(best: Estimate) -> float:
    return sum(best.time[name] for name in COMPUTE)


def _what(loser: _Loser, node: int) -> str:
    """The trait of the layout that the part belongs to."""
    layout = loser.layout
    match loser.part:
        case "tensor communication":
            return f"tp{layout.tensor}" + (" crosses nodes" if layout.tensor > node else "")
        case "expert communication":
            return f"ep{layout.expert}" + (" crosses nodes" if layout.expert > node else "")
        case "context communication":
            return f"cp{layout.context}:{layout.context_kind}"
        case "data communication":
            return STAGES[layout.zero_stage] if layout.zero_stage else "gradients reduced whole"
        case "bubble" | "pipeline communication":
            return f"pp{layout.pipeline}:{layout.schedule}"
        case "recompute":
            return f"ac:{layout.recompute}"
        case "compute":
            return "smaller matrices or uneven stages"
        case "launch":
            return f"mbs{layout.micro_batch} is launch-bound"
        case "offload":
            return "states on the host"
    return "updating the states"
