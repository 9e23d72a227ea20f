"""A run under any layout is the run that a person would write by hand for one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from meshwright.train.launch.pool import RankPool

from . import by_hand
from .runs import losses, run

ByHand = tuple[Path, list[float], list[float], transformers.PreTrainedModel]


@pytest.fixture(scope="module")
def hand(tmp_path_factory: pytest.TempPathFactory) -> ByHand:
    folder = by_hand.small_llama(tmp_path_factory.mktemp("hand") / "start")
    return folder, *by_hand.trained(folder)


def flags(folder: Path) -> dict[str, Any]:
    return by_hand.FLAGS | {"model": folder, "checkpoint__load": folder}


@pytest.mark.parametrize(
    "layout", ["ddp2 mbs2", "fsdp2 tp2 mbs2", "zero1:2 ac:full", "pp2:1f1b", "pp2:zbvzerobubble mbs2", "ddp2 cp2"]
)
def test_a_run_is_the_one_written_by_hand(ranks: RankPool, tmp_path: Path, hand: ByHand, layout: str) -> None:
    folder, curve, norms, _ = hand
    steps = run(ranks, tmp_path, layout, **flags(folder))
    assert losses(steps) == pytest.approx(curve, rel=2e-6)
    assert [step["grad_norm"] for step in steps] == pytest.approx(norms, rel=1e-4)


def test_what_a_run_exports_is_what_was_trained(ranks: RankPool, tmp_path: Path, hand: ByHand) -> None:
    folder, _, _, model = hand
    run(ranks, tmp_path / "run", "fsdp2", **flags(folder), checkpoint__export=tmp_path / "end")
    exported = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "end")
    for name, expected in model.state_dict().items():
        torch.testing.assert_close(exported.state_dict()[name], expected, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("orders", [("ddp2", "fsdp2 mbs2", "tp2 mbs4"), ("pp2:1f1b mbs2", "zero2:2", "ddp2 tp2 mbs2")])
def test_a_run_that_changes_its_layout_goes_on_with_its_curve(
    ranks: RankPool, tmp_path: Path, hand: ByHand, orders: tuple[str, ...]
) -> None:
    folder, curve, _, _ = hand
    for part, layout in enumerate(orders, 1):
        stop = 2 * part if part < len(orders) else None
        steps = run(ranks, tmp_path, layout, stop_after=stop, **flags(folder))
    assert [step["step"] for step in steps] == [1, 2, 3, 4, 5, 6]
    assert losses(steps) == pytest.approx(curve, rel=2e-6)
