"""How data-parallel ranks begin: sharded parameters are drawn shard by shard, and what PyTorch cannot do is refused."""

from __future__ import annotations

import math

import pytest
import torch

from meshwright.modes.cuts import Cut
from meshwright.modes.mesh import make_mesh
from meshwright.modes.options import Options
from meshwright.modes.parallelize import parallelize
from meshwright.spec import parse_layout
from meshwright.spec.errors import RequestError
from meshwright.train.assemble import assemble
from meshwright.train.batch import Batch
from meshwright.train.launch.pool import RankPool
from meshwright.train.models.build import build_model, load_architecture


def numbers_drawn(layout: str) -> tuple[int, int]:
    """Numbers that this rank was asked to draw, and those of the whole model."""
    model = build_model(load_architecture("tiny-llama"), device="meta")
    whole = sum(parameter.numel() for parameter in model.parameters())
    drawn: list[int] = []

    def fill(name: str, cut: Cut, tensor: torch.Tensor) -> None:
        assert tuple(tensor.shape) == cut.size
        drawn.append(math.prod(cut.size))
        tensor.fill_(1.0)

    parallelize(model, make_mesh(parse_layout(layout)), initialise=fill)
    return sum(drawn), whole


@pytest.mark.parametrize("layout", ["fsdp2", "zero1:2", "fsdp2 tp2"])
def test_a_rank_draws_its_shards_and_no_more(ranks: RankPool, layout: str) -> None:
    world = parse_layout(layout).devices
    for drawn, whole in ranks.run(numbers_drawn, layout, world=world):
        assert whole / world <= drawn < 1.01 * whole / world  # norms are whole on tensor ranks


def step_of_two_micro_batches(static_graph: bool) -> None:
    step = assemble(
        load_architecture("tiny-llama"), make_mesh(parse_layout("ddp2")), Options(static_graph=static_graph)
    )
    tokens = torch.zeros(1, 8, dtype=torch.int64)
    batch = Batch(tokens, tokens, torch.arange(8).expand(1, -1))
    step.run([batch, batch], target_tokens=32)


def test_a_static_graph_with_accumulation_is_refused(ranks: RankPool) -> None:
    ranks.run(step_of_two_micro_batches, False, world=2)
    with pytest.raises(RequestError, match="one micro-batch"):
        ranks.run(step_of_two_micro_batches, True, world=2)
