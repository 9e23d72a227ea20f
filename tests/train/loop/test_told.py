"""What a run tells: the layout that runs, numbers of every step, how it ended."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from meshwright.spec.notation import parse_layout
from meshwright.spec.units import count
from meshwright.train.launch.pool import RankPool
from meshwright.train.loop.facts import running_layout
from meshwright.train.loop.setup import set_up
from meshwright.train.metrics.summary import read_summary

from .runs import job_of, run

NUMBERS = 264 * 32 * 2 + 4 * (2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 64 + 2 * 32) + 32
"""Of the nano Llama: table and head, four blocks (q and o; k and v of 2 heads of 4; MLP; norms), last norm."""


def facts(folder: str, layout: str, flags: dict[str, str]) -> str:
    return running_layout(set_up(job_of(folder, layout, flags), torch.device("cpu")).step)


@pytest.mark.parametrize(
    ("layout", "flags", "told"),
    [
        ("ddp1", {}, ["one data rank", f"rank 0 holds all the model's {count(NUMBERS)}"]),
        ("ddp2", {}, ["DDP over 2 ranks", "holds all the model's"]),
        ("zero1:2", {}, ["FSDP2 in 5 units over 2 shards, keeping optimizer states split", f"{count(NUMBERS / 2)} of"]),
        ("zero2:2", {}, ["keeping gradients and optimizer states split"]),
        ("fsdp2 ac:full", {}, ["keeping parameters, gradients and states split", "4 blocks computed again"]),
        ("hsdp2x2", {}, ["2 replicas × 2 shards", f"{count(NUMBERS / 2)} of"]),
        ("tp2 ac:selective", {}, ["tensors cut 2 ways, sequence parallel", "4 attention cores computed again"]),
        ("cp2:ulysses", {}, ["DDP over 2 ranks", "sequences cut over 2 ranks (ulysses)"]),
        ("fsdp2 cp2", {}, ["over 4 shards", "(ring)", f"{count(NUMBERS / 4)} of"]),
        ("pp2:1f1b", {}, ["one data rank", "1f1b over 2 pipeline ranks, this one with stage 0", "all its stage's"]),
        ("pp2:dualpipev", {}, ["dualpipev over 2 pipeline ranks, this one with stages 0, 3"]),
        ("pp2:1f1b ddp2", {}, ["gradients summed over 2 data ranks after the pipeline"]),
        ("fsdp4 ep2", {"model": "tiny-mixtral"}, ["over 4 shards", "experts spread over 2 ranks"]),
        ("ddp2", {"train.compile": "true"}, ["4 blocks compiled"]),
    ],
)
def test_the_running_layout_is_read_off_what_was_built(
    ranks: RankPool, tmp_path: Path, layout: str, flags: dict[str, str], told: list[str]
) -> None:
    texts = ranks.run(facts, str(tmp_path), layout, flags, world=parse_layout(layout).devices)
    assert texts[0].startswith("running: ")
    for text in told:
        assert text in texts[0]
    assert all(f"rank {rank} holds" in text for rank, text in enumerate(texts))


def test_a_run_leaves_a_number_for_every_step_and_a_word_from_every_rank(ranks: RankPool, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    flags = {"train__steps": 5, "metrics__tensorboard": True, "checkpoint__every": 2, "checkpoint__async": True}
    run(ranks, tmp_path, "fsdp2", stop_after=3, **flags)
    first = read_summary(tmp_path)
    assert first is not None
    assert first["stopped_by"] == "a signal to another rank"
    steps = run(ranks, tmp_path, "fsdp2", **flags)
    assert [step["step"] for step in steps] == [1, 2, 3, 4, 5]
    assert all(step["loss"] > 0 and step["seconds"] > 0 and step["tokens"] == 8 * 32 for step in steps)
    summary = read_summary(tmp_path)
    assert summary is not None
    assert (summary["first_step"], summary["stopped_by"], summary["last"]["step"]) == (3, None, 5)
    assert summary["layout_run"].startswith("running: FSDP2 in 5 units over 2 shards")
    assert summary["last"] == steps[-1]
    curves = EventAccumulator(str(tmp_path / "tensorboard"))
    curves.Reload()
    assert [point.step for point in curves.Scalars("loss")] == [1, 2, 3, 4, 5]
    assert curves.Scalars("loss")[4].value == pytest.approx(steps[4]["loss"], rel=1e-6)
    logs = [(tmp_path / "logs" / f"rank-{rank:04d}.log").read_text() for rank in range(2)]
    for rank, log in enumerate(logs):
        assert f"rank {rank} holds" in log
        assert "resumed from" in log
    assert "saved after step 3; the same command goes on from there" in logs[0]
    assert f"step 5/5  loss {steps[4]['loss']:.4f}" in logs[0]
    assert "grad norm" not in logs[1]


def test_the_first_rank_foretells_and_then_compares(ranks: RankPool, tmp_path: Path) -> None:
    run(ranks, tmp_path, "ddp2", cluster="2xH100", model="tiny-llama", train__steps=2)
    log = (tmp_path / "logs" / "rank-0000.log").read_text()
    assert log.index("predicted step") < log.index("running: ") < log.index("measured: step")
    assert "predicted" not in (tmp_path / "logs" / "rank-0001.log").read_text()
