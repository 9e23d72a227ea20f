"""Five axes at once: every rank of 32 builds its share, and together they hold each number as often as they say."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
import torch
from torch.distributed.tensor import DTensor

from meshwright.modes.parallelize import Parallel
from meshwright.spec.errors import LayoutError
from meshwright.spec.notation import parse_layout
from meshwright.train.assemble import assemble
from meshwright.train.models.build import load_architecture
from meshwright.train.models.decoder import parameter_shapes
from tests.modes.fake import fake_mesh

MODELS = Path(__file__).parents[1] / "check" / "models"
FIVE_AXES = "hsdp2x2 cp2 tp2 pp2:1f1b ep4"


def build(model: str, layout: str, rank: int) -> Parallel:
    with fake_mesh(layout, rank) as mesh:
        return assemble(load_architecture(str(MODELS / f"nano-{model}.json")), mesh).parallel


@pytest.mark.parametrize(
    ("model", "layout"),
    [
        ("mixtral", FIVE_AXES),
        ("mixtral", "zero1:2 cp2 tp2 pp2:zbvzerobubble ep2"),
        ("mixtral", "ddp2 tp2 pp2:interleaved1f1b:2 ep4"),
        ("qwen2-moe", "fsdp2 tp4 ep2"),
        ("tied", "fsdp4 tp2 pp2:1f1b"),
        ("tied", "zero2:2 pp2:dualpipev"),
        ("gpt2", "hsdp2x2 tp4"),
    ],
)
def test_every_number_is_on_as_many_ranks_of_its_stage_as_parts_say(model: str, layout: str) -> None:
    shapes = parameter_shapes(load_architecture(str(MODELS / f"nano-{model}.json")))
    held = {name: torch.zeros(shape) for name, shape in shapes.items()}
    said: dict[str, set[int]] = defaultdict(set)
    tied = defaultdict(int)
    for rank in range(parse_layout(layout).devices):
        for part in build(model, layout, rank).parts:
            assert part.shape == shapes[part.name]
            assert part.data.shape == part.size
            if part.tied_copy:
                tied[part.name] += part.data.numel()
                continue
            box = held[part.name]
            for dim, (start, length) in enumerate(zip(part.offset, part.size, strict=True)):
                box = box.narrow(dim, start, length)
            box += 1
            said[part.name].add(part.copies)
    for name, counts in held.items():
        assert len(said[name]) == 1, name
        assert (counts == said[name].pop()).all(), name
    assert set(tied) == ({"embed.tokens.weight"} if model == "tied" else set())


def test_the_five_axes_cut_what_they_are_for() -> None:
    """nano-mixtral: 4 layers of hidden 16, 2 key heads of 4, 4 experts 32 wide. Rank 0 of hsdp2x2 cp2 tp2 pp2 ep4."""
    parallel = build("mixtral", FIVE_AXES, 0)
    parts = {part.name: part for part in parallel.parts}
    assert {name.split(".")[1] for name in parts if name.startswith("layers.")} == {"0", "1"}
    assert "head.weight" not in parts
    # Half of 16 rows to the tensor rank, a quarter of these to each of shard × context = 4 ranks.
    assert parts["layers.0.attention.q.weight"].size == (2, 16)
    assert parts["layers.0.attention.q.weight"].copies == 2  # the replicas
    # Its columns are split over tensor ranks, its rows over the shards.
    assert parts["layers.0.attention.o.weight"].size == (4, 8)
    # One of 4 experts. Of the 4 ranks that have it two share it, by its width: there are fewer experts than ranks.
    experts = [{p.name: p for p in build("mixtral", FIVE_AXES, rank).parts} for rank in (0, 4)]
    held = [(one["layers.0.moe.experts.gate"].offset, one["layers.0.moe.experts.gate"].size) for one in experts]
    assert held == [((0, 0, 0), (1, 16, 16)), ((0, 16, 0), (1, 16, 16))]
    assert parts["layers.0.moe.experts.gate"].copies == 2
    assert all(isinstance(part.parameter, DTensor) for part in parallel.parts)


@pytest.mark.parametrize(
    ("layout", "told"),
    [
        ("tp8", "attention.q.weight has 4 rows, columns or heads"),  # 16 rows, but 4 heads
        ("pp8:1f1b", "4 layers cannot fill 8 stages"),
        ("ddp3 ep3", "4 experts do not divide over 3"),
    ],
)
def test_what_does_not_divide_is_refused(layout: str, told: str) -> None:
    with pytest.raises(LayoutError, match=told):
        build("mixtral", layout, 0)
