"""What a configuration can ask for beside a layout, under layouts that share nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from meshwright.cost.schedules import format_table, table
from meshwright.train.launch.pool import RankPool

from .runs import losses, run

Reference = Callable[..., list[dict[str, Any]]]
RATES = {"adamw": 1e-3, "sgd": 1e-2, "adafactor": 1e-2, "lamb": 1e-2, "muon": 1e-3}


@pytest.fixture(scope="module")
def plain(ranks: RankPool, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """The steps of two data-parallel ranks with the same flags, run once."""
    known: dict[str, list[dict[str, Any]]] = {}

    def steps(**flags: Any) -> list[dict[str, Any]]:
        if repr(flags) not in known:
            known[repr(flags)] = run(ranks, tmp_path_factory.mktemp("plain"), "ddp2 mbs4", **flags)
        return known[repr(flags)]

    return steps


@pytest.mark.parametrize("name", list(RATES))
def test_every_optimizer_gives_one_curve_under_all_layouts(
    ranks: RankPool, tmp_path: Path, plain: Reference, name: str
) -> None:
    flags = {"optimizer__name": name, "optimizer__lr": RATES[name]}
    curve = losses(plain(**flags))
    assert losses(run(ranks, tmp_path, "fsdp2 tp2 mbs2", **flags)) == pytest.approx(curve, rel=2e-6)
    assert curve[0] - curve[3] > 1e-3  # it learns


@pytest.mark.parametrize("layout", ["ddp2 ep2 mbs2", "fsdp2 tp2 mbs2", "pp2:1f1b mbs2"])
def test_experts_are_balanced_alike_under_all_layouts(
    ranks: RankPool, tmp_path: Path, plain: Reference, layout: str
) -> None:
    flags = {"model": "tiny-mixtral", "train__steps": 2, "parallel__aux_coefficient": 0.5}
    whole = plain(**flags)
    cut = run(ranks, tmp_path / "cut", layout, **flags)
    without = run(ranks, tmp_path / "without", layout, **flags | {"parallel__aux_coefficient": 0})
    norms, other, bare = ([step["grad_norm"] for step in steps] for steps in (whole, cut, without))
    assert losses(cut) == pytest.approx(losses(whole), rel=2e-6)
    assert other == pytest.approx(norms, rel=1e-5)
    assert bare[0] != pytest.approx(norms[0], rel=1e-3)


HELD_OUT: dict[str, Any] = {"train__eval_every": 2, "train__eval_steps": 2, "data__validation_share": 0.1}


@pytest.mark.parametrize(
    "layout", ["fsdp2 tp2 mbs2", "ddp2 cp2", "pp2:dualpipev", "pp2:zbvzerobubble", "pp2:interleaved1f1b fsdp2 mbs2"]
)
def test_held_out_loss_is_the_same_under_all_layouts(
    ranks: RankPool, tmp_path: Path, plain: Reference, layout: str
) -> None:
    whole = plain(**HELD_OUT)
    cut = run(ranks, tmp_path / "cut", layout, **HELD_OUT)
    assert [step.get("eval_loss") is not None for step in cut] == [False, True, False, True]
    assert losses(cut) == pytest.approx(losses(whole), rel=2e-6)
    for one, other in zip(whole[1::2], cut[1::2], strict=True):
        assert other["eval_loss"] == pytest.approx(one["eval_loss"], rel=2e-6)
        assert one["eval_loss"] != pytest.approx(one["loss"], rel=1e-4)


def test_held_out_loss_of_no_training_is_the_training_loss(ranks: RankPool, tmp_path: Path) -> None:
    """With a rate of 0 and samples all alike, both must be the one number."""
    Path(tmp_path / "text.txt").write_text("same again. " * 4000)
    steps = run(
        ranks, tmp_path / "run", "ddp2 mbs2", optimizer__lr=0, optimizer__weight_decay=0, train__seq_len=12,
        data__source=tmp_path / "text.txt", data__cache_dir=tmp_path / "cache", **HELD_OUT,
    )  # fmt: skip
    assert steps[1]["eval_loss"] == pytest.approx(steps[0]["loss"], rel=1e-5)


@pytest.mark.parametrize("layout", ["fsdp2 tp2 mbs2", "ddp2 cp2", "pp2:1f1b ddp2 mbs2"])
def test_isolated_documents_are_the_same_under_all_layouts(
    ranks: RankPool, tmp_path: Path, plain: Reference, layout: str
) -> None:
    for number in range(40):
        (tmp_path / f"{number}.txt").write_text(f"document {number} of forty, " * (number % 5 + 1))
    flags = {"data__source": tmp_path / "*.txt", "data__cache_dir": tmp_path / "cache", "train__steps": 2}
    isolated = run(ranks, tmp_path / "plain", "ddp2 mbs4", data__isolate_documents=True, **flags)
    cut = run(ranks, tmp_path / "cut", layout, data__isolate_documents=True, **flags)
    assert losses(cut) == pytest.approx(losses(isolated), rel=2e-6)
    assert [step["target_tokens"] for step in cut] == [step["target_tokens"] for step in isolated]
    assert all(step["target_tokens"] < step["tokens"] for step in cut)  # no target crosses a border


@pytest.mark.parametrize(
    ("schedule", "layout"), [("gpipe", "pp2:1f1b mbs2"), ("zbvzerobubble", "pp2:interleaved1f1b mbs2")]
)
def test_a_schedule_from_a_file_is_the_one_that_runs(
    ranks: RankPool, tmp_path: Path, plain: Reference, schedule: str, layout: str
) -> None:
    file = tmp_path / "schedule.csv"
    file.write_text(format_table(table(schedule, 2, 4, 2 if "interleaved" in layout else 1)))
    whole = plain(**HELD_OUT)
    steps = run(ranks, tmp_path / "run", layout, parallel__schedule_csv=file, **HELD_OUT)
    assert losses(steps) == pytest.approx(losses(whole), rel=2e-6)
    assert steps[1]["eval_loss"] == pytest.approx(whole[1]["eval_loss"], rel=2e-6)
    assert f"{file} over 2 pipeline ranks" in (tmp_path / "run" / "logs" / "rank-0000.log").read_text()
    if schedule == "zbvzerobubble":  # a V: the first rank has the first and the last stage
        assert "this one with stages 0, 3" in (tmp_path / "run" / "logs" / "rank-0000.log").read_text()
