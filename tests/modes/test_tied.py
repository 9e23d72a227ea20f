"""Tied tables: one parameter where both ends are, equal copies where they are apart."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from meshwright.modes.mesh import make_mesh
from meshwright.spec.notation import parse_layout
from meshwright.train.assemble import assemble
from meshwright.train.launch.pool import RankPool
from meshwright.train.models.build import load_architecture
from tests.modes.fake import fake_mesh

TIED = str(Path(__file__).parents[1] / "check" / "models" / "nano-tied.json")
TABLE = "embed.tokens.weight"


@pytest.mark.parametrize("layout", ["ddp2", "tp2", "fsdp2", "cp2"])
def test_without_a_pipeline_the_head_is_the_table(layout: str) -> None:
    with fake_mesh(layout, 0) as mesh:
        parallel = assemble(load_architecture(TIED), mesh).parallel
        (model,) = parallel.stages
        assert model.head.weight is model.embed.tokens.weight  # type: ignore[union-attr]
        assert [part.name for part in parallel.parts].count(TABLE) == 1
        assert parallel.tied == []


@pytest.mark.parametrize(
    ("layout", "rank", "copies"),
    [
        ("pp2:1f1b", 0, [False]),
        ("pp2:1f1b", 1, [True]),
        ("pp3:1f1b", 1, []),
        ("pp2:zbvzerobubble", 0, [False, True]),  # both ends of a V
        ("pp2:zbvzerobubble", 1, []),
        ("tp2 pp2:1f1b", 3, [True]),
    ],
)
def test_the_last_stage_s_copy_is_the_one_that_counts_for_nothing(layout: str, rank: int, copies: list[bool]) -> None:
    with fake_mesh(layout, rank) as mesh:
        parallel = assemble(load_architecture(TIED), mesh).parallel
        tables = [part for part in parallel.parts if part.name == TABLE]
        assert [part.tied_copy for part in tables] == copies
        assert len(parallel.tied) == bool(copies)
        for one in tables[1:]:
            assert torch.equal(one.data, tables[0].data)  # drawn by its name: the table's
        if layout == "tp2 pp2:1f1b":
            assert tables[0].offset == (34, 0)  # the second half of 67 rows, as the table itself is cut


def summed(layout: str) -> list[float]:
    """This rank's gradients of the table, which before the sum are 1 on the first stage and 10 on the last."""
    parallel = assemble(load_architecture(TIED), make_mesh(parse_layout(layout))).parallel
    for part in parallel.parts:
        part.parameter.grad = torch.full_like(part.parameter, 10.0 if part.tied_copy else 1.0)
    for table in parallel.tied:
        table.sum_gradients()
    found = [part.gradient for part in parallel.parts if part.name == TABLE]
    others = [part.gradient for part in parallel.parts if part.name != TABLE]
    assert all(gradient is not None and (gradient == 1.0).all() for gradient in others)
    return [float(gradient.unique()) for gradient in found if gradient is not None]


@pytest.mark.parametrize("layout", ["pp2:1f1b", "pp2:dualpipev", "fsdp2 pp2:1f1b", "tp2 pp2:1f1b"])
def test_copies_get_the_sum_of_their_gradients(ranks: RankPool, layout: str) -> None:
    found = [value for rank in ranks.run(summed, layout, world=parse_layout(layout).devices) for value in rank]
    assert found == [11.0] * parse_layout(layout).devices
