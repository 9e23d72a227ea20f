"""`--layouts all` is all: every mode, every schedule, every pair of kinds that the runtime allows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations, product

import pytest

from meshwright.check.case import Case
from meshwright.check.every import every_layout
from meshwright.spec.layout import CONTEXT_KINDS, RECOMPUTE, SCHEDULES, Layout
from meshwright.spec.model import Model
from meshwright.spec.model_config import read_config
from meshwright.spec.notation import parse_layouts
from meshwright.train.config.models import model_to_train
from tests.check.cases import COMPLETE

KINDS = {
    "data": tuple(f"stage {stage}" for stage in range(4)),
    "tensor": ("sequence", "no sequence"),
    "context": CONTEXT_KINDS,
    "pipeline": SCHEDULES,
    "expert": ("spread",),
    "recompute": RECOMPUTE[1:],
}
NOT_TOGETHER = {("tensor no sequence", "expert spread")}
"""Refused by the runtime."""


def modes(layout: Layout) -> Iterator[str]:
    """What a layout does, from its fields."""
    if layout.data > 1:
        yield f"data stage {layout.zero_stage}"
    if layout.tensor > 1:
        yield "tensor sequence" if layout.sequence_parallel else "tensor no sequence"
    if layout.context > 1:
        yield f"context {layout.context_kind}"
    if layout.pipeline > 1:
        yield f"pipeline {layout.schedule}"
    if layout.expert > 1:
        yield "expert spread"
    if layout.recompute != "none":
        yield f"recompute {layout.recompute}"


@pytest.fixture(scope="module")
def four() -> list[Layout]:
    return every_layout(Case("tiny-mixtral", seq_len=32), model_to_train("tiny-mixtral"), 4)


def test_every_mode_is_there_on_two_and_on_four_ranks(four: list[Layout]) -> None:
    for kind, values in KINDS.items():
        for value in values:
            sizes = {layout.devices for layout in four if f"{kind} {value}" in modes(layout)}
            # 4 layers fill no 8 stages, and recomputation takes no ranks.
            assert sizes >= ({2} if kind in ("pipeline", "recompute") else {2, 4}), (kind, value)
    assert {layout.zero_stage for layout in four if min(layout.replicate, layout.shard) > 1} == {1, 2, 3}
    assert any(layout.offload for layout in four)


def test_every_pair_of_kinds_is_there(four: list[Layout]) -> None:
    found = {pair for layout in four for pair in combinations(sorted(modes(layout)), 2)}
    missing = []
    for (first, ones), (second, others) in combinations(KINDS.items(), 2):
        for one, other in product(ones, others):
            pair = (f"{first} {one}", f"{second} {other}")
            if tuple(sorted(pair)) not in found and pair not in NOT_TOGETHER:
                missing.append(pair)
    assert missing == []


def test_the_layouts_of_the_usual_tests_have_every_mode() -> None:
    found = {mode for texts in COMPLETE.values() for layout in parse_layouts(texts) for mode in modes(layout)}
    assert found == {f"{kind} {value}" for kind, values in KINDS.items() for value in values}


def test_eight_ranks_add_three_axes(four: list[Layout]) -> None:
    eight = every_layout(Case("tiny-mixtral", seq_len=32), model_to_train("tiny-mixtral"), 8)
    more = set(eight) - set(four)
    assert set(four) <= set(eight)
    assert {layout.devices for layout in more} == {8}
    names = {"replicate", "shard", "context", "tensor", "pipeline"}
    axes = [{name for name in names if getattr(layout, name) > 1} for layout in more]
    assert all(len(one) == 3 for one in axes)
    assert set.union(*axes) == names


def test_no_layout_needs_more_ranks_than_there_are() -> None:
    found = every_layout(Case("tiny-llama", seq_len=32), model_to_train("tiny-llama"), 3)
    assert {layout.devices for layout in found} == {2}


def small(**changes: int) -> Model:
    numbers = {
        "hidden_size": 24,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "intermediate_size": 32,
        "vocab_size": 64,
        "num_local_experts": 4,
        "num_experts_per_tok": 1,
    }
    return read_config({"model_type": "mixtral", **numbers, **changes}, "small")


@pytest.mark.parametrize(
    ("changes", "absent"),
    [
        ({"num_attention_heads": 3, "num_key_value_heads": 3}, lambda x: x.tensor > 1 or x.context_kind == "ulysses"),
        ({"num_hidden_layers": 2}, lambda x: x.stages > 2),
        ({"num_local_experts": 3}, lambda x: x.expert > 1),
        ({"intermediate_size": 31}, lambda x: x.tensor > 1 and x.expert == 1),
    ],
)
def test_what_a_model_cannot_divide_is_left_out(
    four: list[Layout], changes: dict[str, int], absent: Callable[[Layout], bool]
) -> None:
    assert any(absent(layout) for layout in four)
    found = every_layout(Case("", seq_len=32), small(**changes), 4)
    assert found
    assert not any(absent(layout) for layout in found)


def test_a_batch_that_cannot_be_cut_twice_is_left_out() -> None:
    found = every_layout(Case("tiny-llama", seq_len=32, global_batch=4), model_to_train("tiny-llama"), 4)
    assert found
    assert not any(layout.data == 4 for layout in found)  # a sequence a rank: no second micro-batch
