"""Narrow formats, recomputation, compiled blocks, offload: the same curve, as near as their numbers are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from meshwright.train.launch.pool import RankPool

from .runs import losses, parameters_of_ranks, run

LAYOUTS = ["ddp2 mbs2", "fsdp2 mbs2", "tp2 mbs2", "pp2:1f1b mbs2"]


@pytest.fixture(scope="module")
def wide(ranks: RankPool, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The curve in fp32."""
    return losses(run(ranks, tmp_path_factory.mktemp("wide"), "ddp2 mbs2"))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("precision", "epsilon"), [("bf16", 2**-8), ("fp16", 2**-11)])
def test_a_narrow_run_follows_the_wide_one(
    ranks: RankPool, tmp_path: Path, wide: list[float], layout: str, precision: str, epsilon: float
) -> None:
    curve = losses(run(ranks, tmp_path, layout, train__precision=precision))
    # A loss of 5.6 is a mean over hundreds of tokens, whose roundings cancel; a wrong cast is off by far more.
    assert curve == pytest.approx(wide, rel=epsilon / 2)
    assert curve != wide


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_overflow_is_a_step_left_out_on_every_rank(ranks: RankPool, tmp_path: Path, layout: str) -> None:
    flags = {"train.precision": "fp16", "train.loss_scale": str(2.0**32), "train.steps": "2"}
    found = ranks.run(parameters_of_ranks, str(tmp_path / "over"), layout, flags, world=2)
    assert [skipped for _, skipped in found] == [[True, True]] * 2
    fresh = ranks.run(parameters_of_ranks, str(tmp_path / "fresh"), layout, {**flags, "optimizer.lr": "0"}, world=2)
    for (numbers, _), (first, _) in zip(found, fresh, strict=True):
        assert all(torch.equal(numbers[name], first[name]) for name in first)


def test_the_loss_scale_halves_until_gradients_fit(ranks: RankPool, tmp_path: Path) -> None:
    steps = run(ranks, tmp_path, "fsdp2", train__precision="fp16", train__loss_scale=2.0**32, train__steps=14)
    good = [step["skipped"] for step in steps].index(False)
    assert 4 < good < 13
    assert [step["loss_scale"] for step in steps] == [2.0 ** (32 - min(n, good)) for n in range(14)]
    assert not any(step["skipped"] for step in steps[good:])
    assert all((step["grad_norm"] is None) == step["skipped"] for step in steps)


@pytest.mark.parametrize(
    ("layout", "flags"),
    [
        ("ddp2 mbs4 ac:selective", {"train__deterministic": True}),
        ("fsdp2 ac:full", {"parallel__prefetch": 0}),
        ("fsdp2 mbs2 offload:optimizer+parameters", {}),
        ("pp2:1f1b mbs2 ac:full", {}),
        ("ddp2 mbs4", {"parallel__static_graph": True, "parallel__bucket_mb": 0.01}),
        ("fsdp2 mbs2", {"train__compile": True}),
    ],
)
def test_what_saves_memory_or_time_changes_no_number(
    ranks: RankPool, tmp_path: Path, wide: list[float], layout: str, flags: dict[str, Any]
) -> None:
    assert losses(run(ranks, tmp_path, layout, **flags)) == pytest.approx(wide, rel=1e-6)


def test_clipping_counts_and_can_be_left_out(ranks: RankPool, tmp_path: Path, wide: list[float]) -> None:
    flags = {"optimizer__name": "sgd", "optimizer__lr": 0.1}
    clipped = run(ranks, tmp_path / "clipped", "fsdp2", train__max_norm=0.1, **flags)
    free = run(ranks, tmp_path / "free", "ddp2", train__max_norm=0, **flags)
    assert clipped[0]["grad_norm"] == pytest.approx(free[0]["grad_norm"], rel=1e-5)
    assert clipped[0]["grad_norm"] > 0.3  # so that the clip has something to do
    assert losses(clipped)[1] > losses(free)[1] + 1e-3
