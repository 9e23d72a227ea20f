"""A run that was stopped is the same run, to the last bit; weights of another run are a start of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from meshwright.train.launch.pool import RankPool
from meshwright.train.loop.run import Outcome
from meshwright.train.loop.steps import Steps
from meshwright.train.metrics.jsonl import read_steps

from .runs import losses, run, saved_state, saved_tensors, work

KEYS = ("step", "loss", "grad_norm", "lr", "target_tokens", "loss_scale", "skipped")


@pytest.mark.parametrize(
    ("layout", "flags"),
    [
        ("ddp2", {}),
        ("fsdp2 tp2 mbs2", {"optimizer__name": "muon"}),
        ("pp2:1f1b", {"train__precision": "fp16", "train__loss_scale": 2.0**22}),
    ],
)
def test_a_stopped_run_goes_on_to_the_last_bit(
    ranks: RankPool, tmp_path: Path, layout: str, flags: dict[str, Any]
) -> None:
    whole = run(ranks, tmp_path / "whole", layout, train__steps=6, **flags)
    stopped = run(ranks, tmp_path / "parts", layout, stop_after=3, train__steps=6, **flags)
    assert len(stopped) == 3
    parts = run(ranks, tmp_path / "parts", layout, train__steps=6, **flags)
    assert [[s.get(key) for key in KEYS] for s in parts] == [[s.get(key) for key in KEYS] for s in whole]
    ends = [tmp_path / name / "checkpoints" / "step-00000006" for name in ("whole", "parts")]
    one, other = map(saved_tensors, ends)
    assert one.keys() == other.keys()
    assert [key for key in one if not torch.equal(one[key], other[key])] == []
    # Of the state only the run's folder differs.
    one_state, other_state = map(saved_state, ends)
    assert {key for key in one_state if one_state[key] != other_state[key]} == {"config"}


def test_a_run_counts_what_it_took_over_its_parts(ranks: RankPool, tmp_path: Path) -> None:
    run(ranks, tmp_path, "ddp2", stop_after=1, train__steps=3)
    run(ranks, tmp_path, "tp2", train__steps=3)
    state = saved_state(tmp_path / "checkpoints" / "step-00000003")
    assert (state["step"], state["samples"], state["tokens"]) == (3, 3 * 8, 3 * 8 * 32)


def test_weights_of_another_run_are_loaded_under_any_layout(ranks: RankPool, tmp_path: Path) -> None:
    run(ranks, tmp_path / "from", "ddp2", train__steps=2, checkpoint__export=tmp_path / "hf")
    ours = tmp_path / "from" / "checkpoints" / "step-00000002"
    found = [
        losses(run(ranks, tmp_path / f"to{i}", layout, train__steps=1, checkpoint__load=source))[0]
        for i, (layout, source) in enumerate([("ddp2", ours), ("tp2", tmp_path / "hf"), ("pp2:1f1b", ours)])
    ]
    fresh = losses(run(ranks, tmp_path / "fresh", "ddp2", train__steps=1))[0]
    assert found[1:] == pytest.approx([found[0]] * 2, rel=1e-6)
    assert found[0] < fresh - 0.05  # the batch is the one that they were trained on


def test_a_run_that_is_done_has_nothing_left_to_do(ranks: RankPool, tmp_path: Path) -> None:
    before = run(ranks, tmp_path, "ddp2", train__steps=2, checkpoint__export=tmp_path / "hf")
    assert run(ranks, tmp_path, "ddp2", train__steps=2, checkpoint__export=tmp_path / "hf") == before
    log = (tmp_path / "logs" / "rank-0000.log").read_text()
    assert "nothing is left to do" in log
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000002"]


def read_late(folder: str, flags: dict[str, str], stop_after: int | None) -> Outcome:
    """A run that reads each step's numbers when the next one is under way, as on a GPU."""
    made = Steps.__init__

    def late(self: Steps, *arguments: Any) -> None:
        made(self, *arguments)
        self._lag = 1

    Steps.__init__ = late  # type: ignore[method-assign]
    try:
        return work(folder, "ddp2", flags, stop_after)
    finally:
        Steps.__init__ = made  # type: ignore[method-assign]


def test_numbers_that_are_read_a_step_late_are_the_same(ranks: RankPool, tmp_path: Path) -> None:
    flags = {"train.steps": "6", "checkpoint.every": "2"}
    whole = run(ranks, tmp_path / "whole", "ddp2", **{name.replace(".", "__"): value for name, value in flags.items()})
    folder = tmp_path / "late"
    stopped = ranks.run(read_late, str(folder), flags, 3, world=2)
    # The signal of step 3 is known when step 4 is done.
    assert [outcome.steps for outcome in stopped] == [4, 4]
    assert all(outcome.exit_code == 143 for outcome in stopped)
    assert len(read_steps(folder / "metrics.jsonl")) == 4
    assert ranks.run(read_late, str(folder), flags, None, world=2) == [Outcome(6, None)] * 2
    late = read_steps(folder / "metrics.jsonl")
    assert [[s.get(key) for key in KEYS] for s in late] == [[s.get(key) for key in KEYS] for s in whole]


def test_a_signal_in_the_last_step_stops_nothing(ranks: RankPool, tmp_path: Path) -> None:
    assert ranks.run(work, str(tmp_path), "ddp2", {"train.steps": "2"}, 2, world=2) == [Outcome(2, None)] * 2
