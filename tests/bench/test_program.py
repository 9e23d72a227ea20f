"""What the ranks of a bench run measure: against formulas, one process, and counting by hand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from meshwright.bench.case import Case
from meshwright.bench.merged_trace import merge_traces
from meshwright.bench.program import run_case
from meshwright.bench.result import DONE
from meshwright.bench.rows import loss_error, row_of
from meshwright.train.config.read import read_config
from meshwright.train.config.resolve import resolve
from meshwright.train.launch.pool import RankPool

NANO = str(Path(__file__).parents[1] / "check" / "models" / "nano-llama.json")


def flags(layout: str, folder: Path) -> dict[str, str]:
    return {
        "model": NANO, "layout": layout, "train.seq_len": "16", "train.global_batch": "8", "run": str(folder),
        "data.source": "synthetic:chain", "launch.device": "cpu",
    }  # fmt: skip


def measured(ranks: RankPool, layout: str, world: int, folder: Path, traced: int = 1) -> Any:
    case = Case(flags(layout, folder), 2, 2, traced)
    return ranks.run(run_case, case, str(folder), world=world, timeout=240)


def row(found: Any, layout: str, folder: Path) -> Any:
    job = resolve(read_config(None, flags(layout, folder)))
    return row_of(layout, job.model, job.workload, job.layout, [found], DONE)


@pytest.mark.parametrize("layout", ["ddp2 mbs2", "fsdp2 mbs2", "tp2 mbs4", "pp2:1f1b mbs2"])
def test_every_layout_does_the_same_work_and_sends_what_the_formulas_say(
    layout: str, ranks: RankPool, tmp_path: Path
) -> None:
    alone = measured(ranks, "ddp1 mbs4", 1, tmp_path, traced=0)
    found = measured(ranks, layout, 2, tmp_path)
    error = loss_error(found[0]["loss"], alone[0]["loss"])
    assert error is not None
    assert error < 1e-5
    assert len(found[0]["loss"]) == 2 + 2 + 1 + 1  # warm-up, timed, counted, traced
    seen = row(found, layout, tmp_path)
    assert seen.traffic
    for line in seen.traffic:
        assert line.bytes == pytest.approx(line.expected_bytes, rel=1e-9)
        assert line.seconds is not None
        assert line.seconds >= line.exposed_seconds >= 0


def test_a_traced_step_is_told_apart_into_phases_and_into_work_and_waiting(ranks: RankPool, tmp_path: Path) -> None:
    seen = row(measured(ranks, "pp2:gpipe mbs2", 2, tmp_path), "pp2:gpipe mbs2", tmp_path)
    assert {"forward", "backward", "clip", "optimizer"} <= set(seen.phases)
    assert seen.activity is not None
    assert seen.activity.communication == pytest.approx(seen.activity.overlapped + seen.activity.exposed)
    # Four micro-batches, forward and backward, on each of two ranks.
    assert sorted(action.kind for action in seen.gantt) == ["backward"] * 8 + ["forward"] * 8
    assert seen.bubble_formula == pytest.approx(1 / 5)
    assert 0 < seen.bubble < 1
    for stage in seen.stages:
        own = [action for action in seen.gantt if action.rank == stage.rank]
        assert stage.busy_seconds <= sum(action.seconds for action in own) * (1 + 1e-9)


def test_sharded_states_take_a_share_of_the_memory_of_whole_ones(ranks: RankPool, tmp_path: Path) -> None:
    whole = measured(ranks, "ddp2 mbs2", 2, tmp_path, traced=0)[0]["states"]
    shard = measured(ranks, "fsdp2 mbs2", 2, tmp_path, traced=0)[0]["states"]
    model = resolve(read_config(None, flags("ddp2 mbs2", tmp_path))).model
    from meshwright.cost.parameters import parameters

    count = parameters(model).total
    assert whole["parameters"] == 4 * count
    assert whole["optimizer"] == pytest.approx(8 * count, rel=0.01)  # two moments, and a counter a parameter
    assert shard["parameters"] == pytest.approx(2 * count, rel=0.05)  # rows that do not divide are padded
    assert shard["optimizer"] == pytest.approx(4 * count, rel=0.05)


def test_the_peak_holds_the_states_and_the_parts_add_up_to_it(ranks: RankPool, tmp_path: Path) -> None:
    found = measured(ranks, "ddp2 mbs2", 2, tmp_path, traced=0)
    seen = row(found, "ddp2 mbs2", tmp_path)
    states = sum(found[0]["states"].values())
    # Gradients are as large as parameters, and alive when the optimizer makes its states.
    assert seen.memory_bytes >= states + found[0]["states"]["parameters"]
    assert sum(seen.memory_parts.values()) == pytest.approx(seen.memory_bytes)


def test_the_merged_trace_has_every_rank_under_its_own_number(ranks: RankPool, tmp_path: Path) -> None:
    found = measured(ranks, "ddp2 mbs2", 2, tmp_path)
    path = merge_traces(found, tmp_path)
    assert path is not None
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    steps = [event for event in events if event["name"] == "meshwright:step" and event["ph"] == "X"]
    assert sorted(event["pid"] // 100 for event in steps) == [0, 1]
    begins = [event["ts"] for event in steps]
    # One clock, which counts from the barrier that both ranks left right before the step.
    assert max(abs(begin) for begin in begins) < 1e6
    assert not list(tmp_path.glob("trace-*.json.gz"))
