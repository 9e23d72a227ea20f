"""The Layout notation: DESIGN's tokens, round trips, and what a slip of the keyboard is answered with."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.spec.errors import LayoutError
from meshwright.spec.layout import Layout
from meshwright.spec.notation import format_layout, parse_layout, parse_layouts

from .layouts import shapes


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("ddp8", Layout(replicate=8)),
        ("zero1:8", Layout(shard=8, zero_stage=1)),
        ("zero2:8", Layout(shard=8, zero_stage=2)),
        ("zero3:8", Layout(shard=8, zero_stage=3)),
        ("fsdp8", Layout(shard=8, zero_stage=3)),
        ("hsdp2x4", Layout(replicate=2, shard=4, zero_stage=3)),
        ("ddp2 zero1:4", Layout(replicate=2, shard=4, zero_stage=1)),
        ("tp4", Layout(tensor=4)),
        ("tp4:nosp", Layout(tensor=4, sequence_parallel=False)),
        ("cp2", Layout(context=2)),
        ("cp2:ulysses", Layout(context=2, context_kind="ulysses")),
        ("cp2:ring", Layout(context=2, context_kind="ring")),
        ("cp2:allgather", Layout(context=2, context_kind="allgather")),
        ("ep8", Layout(expert=8)),
        ("pp4", Layout(pipeline=4, schedule="1f1b")),
        ("pp4:1f1b", Layout(pipeline=4, schedule="1f1b")),
        ("pp4:gpipe", Layout(pipeline=4, schedule="gpipe")),
        ("pp4:interleaved1f1b:3", Layout(pipeline=4, schedule="interleaved1f1b", virtual_stages=3)),
        ("pp4:loopedbfs", Layout(pipeline=4, schedule="loopedbfs", virtual_stages=2)),
        ("pp4:interleavedzerobubble:1", Layout(pipeline=4, schedule="interleavedzerobubble", virtual_stages=1)),
        ("pp4:zbvzerobubble", Layout(pipeline=4, schedule="zbvzerobubble", virtual_stages=2)),
        ("pp4:dualpipev:2", Layout(pipeline=4, schedule="dualpipev", virtual_stages=2)),
        ("pp4 stages:3-4-4-3", Layout(pipeline=4, stage_layers=(3, 4, 4, 3))),
        ("mbs2", Layout(micro_batch=2)),
        ("ac:none", Layout()),
        ("ac:selective", Layout(recompute="selective")),
        ("ac:full", Layout(recompute="full")),
        ("zero1:8 offload:optimizer", Layout(shard=8, zero_stage=1, offload=("optimizer",))),
        (
            "fsdp8 offload:parameters+optimizer",
            Layout(shard=8, zero_stage=3, offload=("optimizer", "parameters")),
        ),
        ("fsdp8 offload:optimizer+nvme", Layout(shard=8, zero_stage=3, offload=("optimizer", "nvme"))),
        (
            "fsdp8 quant:weights+gradients hpz4",
            Layout(shard=8, zero_stage=3, quantized=("weights", "gradients"), secondary_shard=4),
        ),
        ("ps8x2", Layout(replicate=8, servers=2)),
        ("ps8x2:stale4", Layout(replicate=8, servers=2, staleness=4)),
        ("ps8x2:async", Layout(replicate=8, servers=2, staleness=-1)),
    ],
)
def test_a_token_means_what_the_table_says(text: str, layout: Layout) -> None:
    assert parse_layout(text) == layout


def test_the_example_of_the_design_is_64_devices() -> None:
    layout = parse_layout("fsdp8 tp4 pp2:1f1b mbs2 ac:selective")
    assert layout.devices == 64
    assert str(layout) == "fsdp8 tp4 pp2:1f1b mbs2 ac:selective"


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        (Layout(), "ddp1"),
        (Layout(tensor=8), "tp8"),
        (Layout(micro_batch=4), "ddp1 mbs4"),
        (Layout(shard=8, zero_stage=3), "fsdp8"),
        (Layout(zero_stage=3), "fsdp1"),
        (Layout(zero_stage=1), "zero1:1"),
        (Layout(replicate=2, zero_stage=3), "hsdp2x1"),
        (Layout(sequence_parallel=False), "tp1:nosp"),
        (Layout(pipeline=2, schedule="interleaved1f1b", virtual_stages=2), "pp2:interleaved1f1b:2"),
        (Layout(pipeline=2, schedule="zbvzerobubble", virtual_stages=2), "pp2:zbvzerobubble"),
    ],
)
def test_a_layout_has_one_canonical_text(layout: Layout, text: str) -> None:
    assert format_layout(layout) == text


@given(shapes(), st.randoms(use_true_random=False))
def test_what_is_printed_is_parsed_back_in_any_order_and_case(layout: Layout, rng: random.Random) -> None:
    words = format_layout(layout).split()
    rng.shuffle(words)
    text = "  ".join(word.upper() if rng.random() < 0.5 else word for word in words)
    assert parse_layout(text) == layout


@given(shapes(), shapes())
def test_different_layouts_print_differently(one: Layout, other: Layout) -> None:
    assert (format_layout(one) == format_layout(other)) == (one == other)


@pytest.mark.parametrize(
    ("text", "said", "legal"),
    [
        ("fdsp8", "Unknown token 'fdsp8'", "fsdp8"),
        ("pipeline4", "Unknown token", "ddp8"),
        ("tp", "cannot be read", "tp4"),
        ("tp-4", "cannot be read", "tp4"),
        ("tp4.5", "cannot be read", "tp4"),
        ("zero4:8", "cannot be read", "zero3:8"),
        ("zero1", "cannot be read", "zero1:8"),
        ("hsdp8", "cannot be read", "hsdp2x4"),
        ("tp0", "out of range", "1 to 1000000"),
        ("tp٣", "cannot be read", "tp4"),
        ("mbs99999999999999999999999999", "out of range", "1 to 1000000"),
        ("ddp1000000 tp1000000", "more than 10,000,000 devices", ""),
        ("pp4:1fb1", "Unknown '1fb1'", "1f1b"),
        ("pp4:interleaved", "Unknown 'interleaved'", "interleaved1f1b"),
        ("cp2:rng", "Unknown 'rng'", "ring"),
        ("ac:partial", "Unknown 'partial'", "none"),
        ("fsdp8 offload:optimiser", "Unknown 'optimiser'", "optimizer"),
        ("fsdp8 offload:optimizer+optimizer", "twice", "optimizer"),
        ("tp4 tp4", "repeated", "tp4"),
        ("tp2 tp4", "contradict", "tp2"),
        ("zero1:8 zero2:8", "contradict", "zero1:8"),
        ("fsdp8 hsdp2x4", "contradict", "fsdp8"),
        ("ddp2 fsdp4", "not written", "hsdp2x4"),
        ("ddp1 fsdp4", "not written", "fsdp4"),
        ("ps8x2 fsdp4", "contradict", "ps8x2"),
        ("ps8x2 ddp8", "contradict", "ps8x2"),
        ("ps8x2 tp2", "plain replicas", "ps8x2"),
        ("pp4:zbvzerobubble:3", "exactly 2 stages", "pp4:zbvzerobubble:2"),
        ("pp4:dualpipev:1", "exactly 2 stages", "pp4:dualpipev:2"),
        ("pp4:1f1b:2", "one stage a rank", "pp4:interleaved1f1b:2"),
        ("pp1:interleaved1f1b:2", "nothing to overlap", "pp1:1f1b"),
        ("pp4 stages:3-4", "lists 2 stages", "pp2:1f1b stages:3-4"),
        ("pp4 stages:3-0-4-3", "no layer", "1 or more"),
        ("ddp8 hpz4", "sharded parameters", "fsdp8"),
        ("fsdp8 hpz3", "equal groups", "hpz2"),
        ("ddp8 offload:optimizer", "Offload needs ZeRO", "zero1:8"),
        ("zero2:8 offload:parameters", "Only ZeRO-3", "fsdp8"),
        ("fsdp8 offload:nvme", "does not say what", "offload:optimizer+nvme"),
        ("", "empty", "ddp1"),
    ],
)
def test_a_wrong_layout_is_refused_with_the_nearest_legal_values(text: str, said: str, legal: str) -> None:
    with pytest.raises(LayoutError) as caught:
        parse_layout(text)
    assert said in str(caught.value)
    assert any(legal in value for value in caught.value.legal) or not legal


@given(st.text(alphabet="dfhpstczeroamb0123456789:x-+{}, \t٣İ", max_size=40))
def test_any_text_is_a_layout_or_a_layout_error(text: str) -> None:
    try:
        layouts = parse_layouts(text)
    except LayoutError:
        return
    assert layouts
    assert all(parse_layout(str(layout)) == layout for layout in layouts)


def test_commas_separate_and_braces_list_alternatives() -> None:
    texts = [str(layout) for layout in parse_layouts("ddp8, fsdp2 pp4:{gpipe,1f1b} mbs{1,2}")]
    assert texts == [
        "ddp8",
        "fsdp2 pp4:gpipe",
        "fsdp2 pp4:gpipe mbs2",
        "fsdp2 pp4:1f1b",
        "fsdp2 pp4:1f1b mbs2",
    ]


def test_equal_layouts_of_a_list_are_kept_once() -> None:
    assert parse_layouts("fsdp8, zero3:8, FSDP8 ac:none") == (Layout(shard=8, zero_stage=3),)


@pytest.mark.parametrize("text", ["pp4:{gpipe,1f1b", "pp4:gpipe}", "tp{1,{2,4}}", "ddp8,,ddp4", "", ",", "ddp{}"])
def test_a_broken_list_is_refused(text: str) -> None:
    with pytest.raises(LayoutError):
        parse_layouts(text)


def test_a_list_that_explodes_is_refused_before_it_is_built() -> None:
    with pytest.raises(LayoutError, match="10,000"):
        parse_layouts(" ".join("{" + ",".join(f"mbs{i}" for i in range(1, 100)) + "}" for _ in range(20)))
