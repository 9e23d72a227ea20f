"""A checkpoint of another model is refused by name and shape, before anything is overwritten."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from meshwright.modes.parts import Part
from meshwright.train.checkpoint import CheckpointError, CheckpointStore, TrainState
from meshwright.train.launch.pool import RankPool

from .cut_parts import Held, differences, held, whole

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    store = CheckpointStore(tmp_path, model={"model": {"hidden": 6, "name": "here"}, "layers": 2})
    mine = held("whole", fill=True)
    store.save(TrainState(step=1), mine.parts, mine.states, asynchronous=False)
    return tmp_path / "step-00000001"


def refused(checkpoint: Path, mine: Held, model: dict[str, Any] | None = None) -> str:
    """What is said on loading, after which the numbers are as before."""
    with pytest.raises(CheckpointError) as caught:
        CheckpointStore(checkpoint.parent, model=model).load(checkpoint, mine.parts, mine.states)
    assert all(torch.isnan(part.data).all() for part in mine.parts)
    return str(caught.value)


def part(name: str, *shape: int) -> Part:
    numbers = torch.full(shape, float("nan"), dtype=torch.float64)
    return Part(name, shape, (0,) * len(shape), shape, nn.Parameter(numbers), 1, None)  # type: ignore[arg-type]


def test_names_and_shapes_that_differ_are_listed(checkpoint: Path) -> None:
    mine = held("whole", fill=False)
    parts = [p for p in mine.parts if p.name not in ("scale", "norm.weight")] + [
        part("norm.weight", 8),
        part("head.weight", 7),
    ]
    message = refused(checkpoint, Held(parts, []))
    assert "norm.weight is [8] here and [6] in the checkpoint" in message
    assert "head.weight [7] is not in the checkpoint" in message
    assert "scale [] is in the checkpoint only" in message
    assert "and 10 more" in message  # five are named of 3 and the 12 optimizer states


def test_an_optimizer_that_is_missing_on_either_side_is_told(checkpoint: Path, tmp_path: Path) -> None:
    mine = held("whole", fill=False)
    assert "embed.tokens.weight (optimizer's exp_avg) [7, 6] is in the checkpoint only" in refused(
        checkpoint, Held(mine.parts, [])
    )
    store = CheckpointStore(tmp_path / "other")
    store.save(TrainState(step=1), held("whole", fill=True).parts, asynchronous=False)
    assert "(optimizer's exp_avg) [7, 6] is not in the checkpoint" in refused(
        tmp_path / "other" / "step-00000001", mine
    )


def test_weights_alone_are_loaded_when_asked(checkpoint: Path) -> None:
    mine = held("whole", fill=False)
    CheckpointStore(checkpoint.parent).load(checkpoint, mine.parts, weights_only=True)
    assert differences(mine, states=False) == []


def test_another_dtype_is_refused_unless_asked_for(checkpoint: Path) -> None:
    mine = held("whole", fill=False, dtype=torch.float32)
    assert "norm.weight is torch.float32 here and torch.float64 in the checkpoint" in refused(
        checkpoint, Held([p for p in mine.parts if p.name == "norm.weight"], [])
    )
    CheckpointStore(checkpoint.parent).load(checkpoint, mine.parts, mine.states, cast=True)
    for p in mine.parts:
        assert torch.equal(p.data, whole(p.name).float())


def test_another_architecture_is_told_by_its_numbers(checkpoint: Path) -> None:
    mine = held("whole", fill=False)
    message = refused(checkpoint, mine, {"model": {"hidden": 8, "name": "elsewhere"}, "layers": 2, "vocab": 7})
    assert "of another model: model.hidden is 8 here and 6 there; vocab is 7 here and None there" in message


def test_ranks_that_do_not_hold_all_of_a_tensor_cannot_save_it(tmp_path: Path) -> None:
    mine = held("whole", fill=True)
    lost = mine.parts[0]
    short = replace(lost, size=(6, 6), parameter=nn.Parameter(lost.data[:6].clone()))
    with pytest.raises(CheckpointError, match=r"hold 36 of the 42 numbers of embed\.tokens\.weight"):
        CheckpointStore(tmp_path).save(TrainState(), [short, *mine.parts[1:]])
    assert list(tmp_path.iterdir()) == []


def load_with_another_model_on_one_rank(path: Path) -> str:
    import torch.distributed as dist

    mine = held("rows", fill=False)
    if dist.get_rank() == 1:
        mine.parts[0] = replace(mine.parts[0], shape=(9, 6))
    with pytest.raises(CheckpointError) as caught:
        CheckpointStore(path.parent).load(path, mine.parts, mine.states)
    assert all(torch.isnan(p.data).all() for p in mine.parts)
    return str(caught.value)


def test_all_ranks_refuse_alike(ranks: RankPool, checkpoint: Path) -> None:
    first, second = ranks.run(load_with_another_model_on_one_rank, checkpoint, world=2)
    assert first == second
    assert "embed.tokens.weight differs between ranks" in first
