"""Fewer experts than shards: each rank holds its share of every expert, and none is padded."""

from __future__ import annotations

from meshwright.train.launch.pool import RankPool
from tests.check.cases import checked, failures, nano


def test_few_experts_over_many_shards_compute_what_one_process_computes(ranks: RankPool) -> None:
    assert failures(checked(ranks, nano("two-experts"), "fsdp4, zero1:4")) == []


def test_few_experts_are_shared_evenly(ranks: RankPool) -> None:
    held = ranks.run(_numbers_of_experts, str(nano("two-experts").model))
    # 4 layers of 2 experts with three matrices of 16 × 32, over 4 ranks.
    assert held == [4 * 2 * 3 * 16 * 32 // 4] * 4


def _numbers_of_experts(model: str) -> int:
    from torch.distributed.tensor import DTensor

    from meshwright.modes.mesh import make_mesh
    from meshwright.spec import parse_layout
    from meshwright.train.assemble import assemble
    from meshwright.train.models.build import load_architecture

    step = assemble(load_architecture(model), make_mesh(parse_layout("fsdp4")))
    parameters = [part.parameter for part in step.parallel.parts if ".experts." in part.name]
    return sum(p.to_local().untyped_storage().nbytes() // 4 for p in parameters if isinstance(p, DTensor))
