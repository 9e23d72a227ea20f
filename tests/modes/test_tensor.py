"""Every style of the tensor-parallel table against the plain module: logits, and gradients of every parameter."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from meshwright.modes.cuts import Cuts
from meshwright.modes.gradients import complete_gradients
from meshwright.modes.mesh import make_mesh
from meshwright.modes.parallelize import parallelize
from meshwright.modes.tensor import apply_tensor
from meshwright.modes.vocabulary import cross_entropy_sum
from meshwright.spec.errors import LayoutError
from meshwright.spec.notation import parse_layout
from meshwright.train.launch.pool import RankPool
from tests.modes.fake import fake_mesh
from tests.modes.toy import Box, boxes, joined, make_toy

SEQ = 8


def batch(vocabulary: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, vocabulary, (3, SEQ + 1), generator=generator)
    return ids[:, :-1], ids[:, 1:]


def parallel_run(layout: str, models: list[tuple[int, int]]) -> list[tuple[torch.Tensor, list[Box]]]:
    """Logits of this rank's rows, and its parts, of toys of (vocabulary, key/value heads) on one mesh."""
    mesh = make_mesh(parse_layout(layout))
    found = []
    for vocabulary, kv_heads in models:
        parallel = parallelize(make_toy(vocabulary, kv_heads), mesh)
        ids, targets = batch(vocabulary)
        logits = parallel.runners[0](ids)
        cross_entropy_sum(logits.flatten(0, 1), targets.flatten(), mesh.group("tensor"), vocabulary).backward()
        complete_gradients(parallel)
        found.append((logits.detach(), boxes(parallel.parts)))
    return found


def plain_run(vocabulary: int, kv_heads: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    model = make_toy(vocabulary, kv_heads)
    ids, targets = batch(vocabulary)
    logits = model(ids)
    F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum").backward()
    return logits.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def assert_equal(found: list[tuple[torch.Tensor, list[Box]]], vocabulary: int, kv_heads: int) -> None:
    logits, gradients = plain_run(vocabulary, kv_heads)
    together = torch.cat([rank[0] for rank in found], -1)[..., :vocabulary]
    assert torch.allclose(together, logits, rtol=1e-12, atol=1e-12)
    whole = joined([rank[1] for rank in found])
    assert whole.keys() == gradients.keys()
    for name, gradient in gradients.items():
        assert torch.allclose(whole[name], gradient, rtol=1e-10, atol=1e-12), name


@pytest.mark.parametrize("layout", ["tp2", "tp2:nosp", "tp4", "tp4:nosp"])
@pytest.mark.parametrize(("vocabulary", "kv_heads"), [(12, 4), (7, 2), (5, 1)])
def test_a_split_model_is_the_model(ranks: RankPool, layout: str, vocabulary: int, kv_heads: int) -> None:
    """Seven rows over 2 and 4 ranks are uneven; five over 4 leave one rank with padding alone; one head is on all."""
    found = ranks.run(parallel_run, layout, [(vocabulary, kv_heads)], world=parse_layout(layout).devices)
    assert_equal([rank[0] for rank in found], vocabulary, kv_heads)


def test_a_mesh_may_serve_models_with_different_heads(ranks: RankPool) -> None:
    models = [(8, 1), (8, 2), (8, 4)]
    found = ranks.run(parallel_run, "tp4", models)
    for at, (vocabulary, kv_heads) in enumerate(models):
        assert_equal([rank[at] for rank in found], vocabulary, kv_heads)


def test_each_rank_holds_its_share_alone(ranks: RankPool) -> None:
    for (rank,) in ranks.run(parallel_run, "tp4", [(8, 2)]):
        sizes = {box.name: box.size for box in rank[1]}
        assert sizes["blocks.0.attn.q.weight"] == (4, 8)
        assert sizes["blocks.0.attn.k.weight"] == (4, 8)  # a head, which a neighbour holds too
        assert sizes["blocks.0.attn.o.weight"] == (8, 4)
        assert sizes["blocks.0.mlp.up.bias"] == (3,)
        assert sizes["blocks.0.mlp.down.bias"] == (8,)
        assert sizes["table.weight"] == sizes["head.weight"] == (2, 8)
        assert sizes["head.bias"] == (2,)


@pytest.mark.parametrize(
    ("degree", "kv_heads", "told"), [(8, 4, r"attn\.q\.weight has 4 "), (3, 3, r"attn\.q"), (4, 3, r"attn\.k")]
)
def test_what_does_not_divide_is_refused(degree: int, kv_heads: int, told: str) -> None:
    toy = make_toy(8, kv_heads)
    with fake_mesh(f"tp{degree}", 0) as mesh, pytest.raises(LayoutError, match=told) as error:
        apply_tensor(toy, mesh, toy.recipe, Cuts())
    assert error.value.legal
