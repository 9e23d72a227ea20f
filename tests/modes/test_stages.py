"""Stages: which layers a rank holds, and a model pruned to them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from meshwright.modes.passthrough import Passthrough
from meshwright.modes.recipe import Recipe
from meshwright.modes.stages import layers_of_stages, own_stages, prune, stage_names
from meshwright.spec.errors import LayoutError
from meshwright.spec.notation import parse_layout
from meshwright.train.models.build import build_model
from meshwright.train.models.init import init_module


def layers(count: int, layout: str) -> list[int]:
    return layers_of_stages(count, parse_layout(layout))


@pytest.mark.parametrize(
    ("count", "layout", "expected"),
    [
        (30, "pp4:1f1b", [7, 8, 8, 7]),  # with embedding and head: 8 each
        (32, "pp4:1f1b", [8, 8, 8, 8]),  # loads 9 8 8 9, as even as 34 / 4 can be
        (8, "pp2:1f1b", [4, 4]),
        (7, "pp2:1f1b", [4, 3]),
        (6, "pp4:1f1b", [1, 2, 2, 1]),
        (4, "pp4:1f1b", [1, 1, 1, 1]),
        (16, "pp4:interleaved1f1b:2", [2, 2, 2, 2, 2, 2, 2, 2]),
        (14, "pp4:zbvzerobubble", [1, 2, 2, 2, 2, 2, 2, 1]),
        (12, "pp4 stages:4-3-3-2", [4, 3, 3, 2]),
    ],
)
def test_layers_are_shared_out_evenly_or_by_hand(count: int, layout: str, expected: list[int]) -> None:
    assert layers(count, layout) == expected


def compositions(count: int, stages: int) -> Iterator[list[int]]:
    """All ways of putting `count` layers into `stages` stages of at least one."""
    if stages == 1:
        yield [count]
        return
    for first in range(1, count - stages + 2):
        for rest in compositions(count - first, stages - 1):
            yield [first, *rest]


def loads(counts: list[int]) -> list[int]:
    """Embedding and head count as a layer each."""
    return [n + (i == 0) + (i == len(counts) - 1) for i, n in enumerate(counts)]


@pytest.mark.parametrize("stages", [2, 3, 4, 5])
def test_no_other_cut_has_a_lighter_fullest_stage_or_is_more_even(stages: int) -> None:
    for count in range(stages, 13):
        found = layers(count, f"pp{stages}:1f1b")
        assert sum(found) == count
        assert min(found) >= 1
        others = [loads(cut) for cut in compositions(count, stages)]
        assert max(loads(found)) == min(map(max, others)), count
        assert sum(x * x for x in loads(found)) == min(sum(x * x for x in other) for other in others), count


@pytest.mark.parametrize(
    ("count", "layout", "told"),
    [
        (3, "pp4:1f1b", "3 layers cannot fill 4 stages"),
        (12, "pp4 stages:4-4-4-4", "places 16 layers in 4 stages; the model has 12 layers, the layout 4 stages"),
    ],
)
def test_what_cannot_be_placed_is_refused(count: int, layout: str, told: str) -> None:
    with pytest.raises(LayoutError, match=told):
        layers(count, layout)


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ("pp4:1f1b", [[0], [1], [2], [3]]),
        ("pp2:interleaved1f1b:3", [[0, 2, 4], [1, 3, 5]]),
        ("pp4:zbvzerobubble", [[0, 7], [1, 6], [2, 5], [3, 4]]),
        ("pp2:dualpipev", [[0, 3], [1, 2]]),
    ],
)
def test_stages_go_round_or_down_and_up_again(layout: str, expected: list[list[int]]) -> None:
    parsed = parse_layout(layout)
    assert [own_stages(parsed, rank) for rank in range(parsed.pipeline)] == expected


def test_a_table_s_places_come_before_the_schedule_s() -> None:
    assert own_stages(parse_layout("pp2:loopedbfs:2"), 0, [0, 1, 1, 0]) == [0, 3]


@pytest.mark.parametrize("model", ["tiny-qwen2-moe", "tiny-gpt2"])
def test_the_stages_of_a_model_in_a_row_are_the_model(model: str) -> None:
    whole = build_model(model, device="cpu", dtype=torch.float64)
    init_module(whole, 0)
    names = stage_names(whole, whole.recipe, parse_layout("pp4:1f1b"))
    assert names[0][0] == "embed"
    assert names[-1][-2:] == ["norm", "head"]
    assert [name for stage in names for name in stage] == ["embed", *(f"layers.{i}" for i in range(4)), "norm", "head"]
    stages = [prune(whole, kept, whole.recipe) for kept in names]
    tokens = torch.arange(24).view(2, 12)
    positions = torch.arange(12).expand(2, -1)
    x = tokens
    for stage in stages:
        x = stage(x, positions)
    assert torch.equal(x, whole(tokens, positions))
    assert list(stages[2].layers) == ["2"]  # type: ignore[arg-type]
    assert isinstance(stages[1].embed, Passthrough)
    assert isinstance(stages[1].head, Passthrough)
    held = [name for stage in stages for name, _ in stage.named_parameters()]
    copies = ["head.weight"] if model == "tiny-gpt2" else []  # its table is tied, and on both ends
    assert sorted(held) == sorted([*(name for name, _ in whole.named_parameters()), *copies])


class Listed(nn.Module):
    """Blocks in a ModuleList, which renumbers what is left when one is deleted."""

    recipe = Recipe(order=("stem", "body.blocks.*", "top"), blocks="body.blocks.*")

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(3, 3)
        self.body = nn.Module()
        self.body.blocks = nn.ModuleList(nn.Linear(3, 3) for _ in range(4))
        self.top = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.body.blocks:  # type: ignore[union-attr]
            x = block(x)
        return self.top(x)  # type: ignore[no-any-return]


def test_blocks_of_a_list_keep_their_numbers() -> None:
    model = Listed()
    names = stage_names(model, model.recipe, parse_layout("pp2:1f1b"))
    assert names == [["stem", "body.blocks.0", "body.blocks.1"], ["body.blocks.2", "body.blocks.3", "top"]]
    first, last = (prune(model, kept, model.recipe) for kept in names)
    assert {name for name, _ in last.named_parameters()} == {
        f"{module}.{kind}" for module in names[1] for kind in ("weight", "bias")
    }
    x = torch.randn(2, 3)
    assert torch.equal(last(first(x)), model(x))


def test_pruning_leaves_the_model_as_it_was() -> None:
    model = Listed()
    before = list(model.state_dict())
    prune(model, ["stem"], model.recipe)
    assert list(model.state_dict()) == before
