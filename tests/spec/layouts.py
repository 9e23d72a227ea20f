"""Layouts for property tests: any that does not contradict itself, and any that a job might be asked for."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from meshwright.spec.layout import CONTEXT_KINDS, RECOMPUTE, SCHEDULES, Layout

degrees = st.one_of(st.sampled_from([1, 2, 3, 4, 8, 16]), st.integers(1, 5000))
few = st.sampled_from([1, 2, 3, 4, 5, 6, 8, 12, 16])
one_stage = st.tuples(st.sampled_from(["gpipe", "1f1b"]), st.just(1))
loops = st.tuples(st.sampled_from(["interleaved1f1b", "loopedbfs", "interleavedzerobubble"]), st.integers(1, 9))
folds = st.tuples(st.sampled_from(["zbvzerobubble", "dualpipev"]), st.just(2))


@st.composite
def shapes(draw: st.DrawFn) -> Layout:
    """Layouts that do not contradict themselves."""
    if draw(st.integers(0, 9)) == 0:
        return draw(served())
    stage = draw(st.integers(0, 3))
    layout = Layout(
        replicate=draw(degrees),
        shard=draw(degrees) if stage else 1,
        zero_stage=stage,
        context=draw(few),
        context_kind=draw(st.sampled_from(CONTEXT_KINDS)),
        tensor=draw(few),
        sequence_parallel=draw(st.booleans()),
        expert=draw(degrees),
        micro_batch=draw(degrees),
        recompute=draw(st.sampled_from(RECOMPUTE)),
    )
    layout = draw(piped(layout))
    return draw(thrifty(layout)) if layout.devices <= 10_000_000 else replace(layout, replicate=1, shard=1)


@st.composite
def served(draw: st.DrawFn) -> Layout:
    """Plain replicas with parameter servers."""
    return Layout(
        replicate=draw(degrees),
        servers=draw(degrees),
        staleness=draw(st.integers(-1, 9)),
        micro_batch=draw(degrees),
        recompute=draw(st.sampled_from(RECOMPUTE)),
    )


@st.composite
def piped(draw: st.DrawFn, layout: Layout) -> Layout:
    """The layout with a pipeline, balanced or by hand."""
    pipeline = draw(few)
    schedule, stages = draw(one_stage if pipeline == 1 else st.one_of(one_stage, loops, folds))
    layout = replace(layout, pipeline=pipeline, schedule=schedule, virtual_stages=stages)
    count = layout.stages
    if draw(st.booleans()) and count <= 32:
        listed = draw(st.lists(st.integers(1, 20), min_size=count, max_size=count))
        if count > 1 and draw(st.booleans()):
            listed[0] = 0
        layout = replace(layout, stage_layers=tuple(listed))
    return layout


@st.composite
def thrifty(draw: st.DrawFn, layout: Layout) -> Layout:
    """The layout with offload and ZeRO++ as far as its ZeRO stage goes."""
    if layout.zero_stage == 3:
        offloads = ((), ("optimizer",), ("parameters",), ("optimizer", "parameters"), ("optimizer", "nvme"))
        divisors = [d for d in range(2, layout.shard + 1) if layout.shard % d == 0]
        return replace(
            layout,
            offload=draw(st.sampled_from([*offloads, ("optimizer", "parameters", "nvme")])),
            quantized=draw(st.sampled_from([(), ("weights",), ("gradients",), ("weights", "gradients")])),
            secondary_shard=draw(st.sampled_from([0, *divisors])),
        )
    return replace(layout, offload=draw(st.sampled_from([(), ("optimizer",)]))) if layout.zero_stage else layout


_PLANS = (
    Layout(shard=8, zero_stage=3),
    Layout(replicate=2, shard=4, zero_stage=1, offload=("optimizer",)),
    Layout(replicate=8, servers=2, staleness=1),
    Layout(shard=8, zero_stage=3, quantized=("weights",), secondary_shard=4, offload=("optimizer", "parameters")),
    Layout(tensor=4, context=2, context_kind="ulysses"),
    Layout(tensor=2, context=2, replicate=2, expert=4),
    Layout(pipeline=4, shard=2, zero_stage=2),
    Layout(pipeline=4, schedule="interleaved1f1b", virtual_stages=3, tensor=2),
    Layout(pipeline=2, schedule="dualpipev", virtual_stages=2, tensor=4, expert=8),
    Layout(pipeline=4, stage_layers=(3, 3, 3, 3), replicate=2),
)
_OTHERWISE = {
    "replicate": (0, 1, 2, 3),
    "shard": (1, 2, 3, 4),
    "zero_stage": (0, 1, 2, 3, 4),
    "context": (1, 2, 3, 4, 8),
    "context_kind": CONTEXT_KINDS,
    "tensor": (1, 2, 3, 4, 8, 16, 10**6),
    "sequence_parallel": (True, False),
    "expert": (1, 2, 3, 8, 16),
    "pipeline": (1, 2, 3, 4, 8, 16),
    "schedule": SCHEDULES,
    "virtual_stages": (1, 2, 3, 4),
    "micro_batch": (1, 2, 3, 8, 10**7),
    "recompute": RECOMPUTE,
    "offload": ((), ("optimizer",), ("parameters",), ("nvme",)),
    "quantized": ((), ("gradients",)),
    "secondary_shard": (0, 1, 2, 3, 8),
    "servers": (0, 1),
    "staleness": (-2, -1, 0, 1),
    "stage_layers": ((), (12,), (6, 6), (0, 6, 6, 0), (5, 0, 7), (3, 3, 3, 3)),
}


@st.composite
def asked(draw: st.DrawFn) -> Layout:
    """Layouts that a person may ask for: sensible ones with up to two fields otherwise."""
    layout = draw(st.sampled_from(_PLANS))
    for name in draw(st.lists(st.sampled_from(sorted(_OTHERWISE)), max_size=2)):
        layout = replace(layout, **{name: draw(st.sampled_from(_OTHERWISE[name]))})
    return layout
