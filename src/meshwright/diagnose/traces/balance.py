"""Unequal work: stages of a pipeline, experts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from statistics import mean, median

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import INFO, LIKELY, POSSIBLE, WARNING, Evidence, Finding
from meshwright.diagnose.traces.jobs import jobs
from meshwright.diagnose.traces.ranks import Rank, Traces, label
from meshwright.spec.collective import ALL_TO_ALL

LOST = 0.1
"""Share of the devices' time that unequal stages cost: the fullest stage is the clock (aiconfigurator#1459: 17 %)."""
BUBBLE = 0.3
"""Share of the time in which stages wait for the first and last micro-batches: below 4 stages, 5 micro-batches."""
UNEQUAL = 1.5
"""Largest over mean of what experts receive: capacity factors up to 1.25 are usual, and what drops none has more."""
_PIPELINE = re.compile(r"(?:^|[_\W])pp(?:$|[_\W])|pipe", re.IGNORECASE)
_EXPERT = re.compile(r"expert|(?:^|[_\W])e?ep(?:$|[_\W])|moe", re.IGNORECASE)
_EXPERT_KERNEL = re.compile(r"group(?:ed)?_?gemm|moe|expert", re.IGNORECASE)
_WORK = ("forward", "backward", "input", "weight")


def pipeline_imbalance(facts: Facts) -> Iterator[Finding]:
    """One stage computes longer than the others, or there are too few micro-batches to fill the pipeline."""
    for job in jobs(facts.of(Traces).ranks):
        stages, micro = stages_of(job)
        if len(stages) < 2:
            continue
        seconds = [mean(value for _, value in of) for of in stages.values()]
        lost = 1 - mean(seconds) / max(seconds) if max(seconds) > 0 else 0.0
        expected = (len(stages) - 1) / (micro + len(stages) - 1) if micro else None
        if lost >= LOST:
            yield _unequal(stages, lost, expected)
        if expected is not None and expected >= BUBBLE:
            yield _bubble(job, len(stages), micro or 0, expected)


Stages = Mapping[tuple[int, ...], list[tuple[Rank, float]]]


def stages_of(job: Sequence[Rank]) -> tuple[Stages, int | None]:
    """Ranks and their computing seconds a step, by the stages that they hold; and the number of micro-batches."""
    named: dict[tuple[int, ...], list[tuple[Rank, float]]] = {}
    micro: set[int] = set()
    for rank in job:
        own = [phase for phase in rank.phases if phase.stage is not None and phase.phase in _WORK]
        micro |= {phase.micro_batch for phase in own if phase.micro_batch is not None}
        if own:
            steps = max(1, len(rank.steps))
            stages = tuple(sorted({phase.stage for phase in own if phase.stage is not None}))
            named.setdefault(stages, []).append((rank, sum(phase.end - phase.start for phase in own) / steps))
    if named:
        return dict(sorted(named.items())), len(micro) or None
    return _by_group(job)


def _by_group(job: Sequence[Rank]) -> tuple[Stages, int | None]:
    """The same where groups are described as a pipeline's: ranks in the order of their numbers are its stages."""
    groups: dict[str, list[Rank]] = {}
    sends: list[int] = []
    for rank in sorted((one for one in job if one.rank is not None and one.steps), key=lambda one: one.rank or 0):
        calls = [call for call in rank.collectives if _PIPELINE.search(call.description) and call.step >= 0]
        if calls:
            groups.setdefault(calls[0].group, []).append(rank)
            sends.append(round(sum(call.kind == "send" for call in calls) / len(rank.steps)))
    found: dict[tuple[int, ...], list[tuple[Rank, float]]] = {}
    for members in groups.values():
        for stage, rank in enumerate(members):
            found.setdefault((stage,), []).append((rank, median(step.busy.compute for step in rank.steps)))
    whole = all(len(members) == len(found) for members in groups.values())
    return (found, min((one for one in sends if one), default=None)) if whole else ({}, None)


def _unequal(stages: Stages, lost: float, expected: float | None) -> Finding:
    means = {key: mean(value for _, value in of) for key, of in stages.items()}
    worst = max(means, key=lambda key: means[key])
    told = ", ".join(f"{value * 1e3:.1f}" for value in means.values())
    beside = f" The bubble of equal stages would be {expected:.0%}." if expected is not None else ""
    last = " It is the last one, which also has the head and the loss." if worst == max(means) else ""
    return Finding(
        "pipeline_imbalance", WARNING, LIKELY,
        tuple(sorted(rank.rank for rank, _ in stages[worst] if rank.rank is not None)),
        f"Stage {'+'.join(map(str, worst))} computes {means[worst] * 1e3:.1f} ms a step, the mean is "
        f"{mean(means.values()) * 1e3:.1f} ms: the others wait {lost:.0%} of the time for it.{last}{beside}",
        tuple(Evidence(of[0][0].path, f"stage {'+'.join(map(str, key))} ({label(of[0][0])}): {means[key] * 1e3:.1f} ms",
                       rank=of[0][0].rank) for key, of in list(stages.items())[:8]),
        f"Computing seconds by stage: {told} ms.",
        ("Move layers away from this stage; count the embedding and the head as layers.",
         "More stages a rank (virtual stages), so that they can be of finer sizes."),
        weight=2,
    )  # fmt: skip


def _bubble(job: Sequence[Rank], stages: int, micro: int, expected: float) -> Finding:
    return Finding(
        "pipeline_imbalance", INFO, LIKELY, (),
        f"{stages} stages and {micro} micro-batches leave a bubble of {expected:.0%}, (p-1)/(m+p-1), with stages of "
        "equal work and without interleaving.",
        (Evidence(job[0].path, f"{micro} micro-batches a step"),),
        "", ("More micro-batches a step.", "Interleaved stages or a zero-bubble schedule."),
    )  # fmt: skip


def moe_imbalance(facts: Facts) -> Iterator[Finding]:
    """Some experts' ranks receive or compute more than the others."""
    for job in jobs(facts.of(Traces).ranks):
        for what, values in (("receive", _received(job)), ("compute in experts", _expert_seconds(job))):
            if len(values) > 1 and mean(values.values()) > 0:
                ratio = max(values.values()) / mean(values.values())
                if ratio >= UNEQUAL:
                    yield _of_experts(job, what, values, ratio)
                    break


def _received(job: Sequence[Rank]) -> dict[int, float]:
    """Bytes that came by all-to-all in groups of experts, by place in the job."""
    found: dict[int, float] = {}
    for place, rank in enumerate(job):
        experts = any(_EXPERT_KERNEL.search(name) for name in rank.work)
        for call in rank.collectives:
            if call.kind == ALL_TO_ALL and call.received is not None and (experts or _EXPERT.search(call.description)):
                found[place] = found.get(place, 0.0) + call.received
    return found


def _expert_seconds(job: Sequence[Rank]) -> dict[int, float]:
    found = {}
    for place, rank in enumerate(job):
        seconds = [work.seconds for name, work in rank.work.items() if _EXPERT_KERNEL.search(name)]
        if seconds:
            found[place] = sum(seconds)
    return found


def _of_experts(job: Sequence[Rank], what: str, values: Mapping[int, float], ratio: float) -> Finding:
    worst = max(values, key=lambda place: values[place])
    unit, scale = ("MB", 1e6) if what == "receive" else ("ms", 1e-3)
    return Finding(
        "moe_imbalance", WARNING, LIKELY if what == "receive" else POSSIBLE,
        () if job[worst].rank is None else (job[worst].rank or 0,),
        f"The experts of {label(job[worst])} {what} {ratio:.2f} times the mean of all ranks, and the hottest "
        "sets the time.",
        tuple(Evidence(job[place].path, f"{label(job[place])}: {value / scale:.2f} {unit}", rank=job[place].rank)
              for place, value in sorted(values.items(), key=lambda item: -item[1])[:6]),
        "Tokens by expert over some steps; whether the ratio grows.",
        ("An auxiliary or bias-based balancing loss, a capacity factor.",
         "As many experts on each rank; redundant copies of hot ones."),
        weight=3,
    )  # fmt: skip
