"""Metric lines of real programs: the numbers in them, by name and in one unit."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from meshwright.diagnose.diagnosis import diagnose, judge
from meshwright.diagnose.inputs import read_inputs
from meshwright.diagnose.metrics import series
from meshwright.diagnose.metrics.numbers import numbers
from meshwright.diagnose.metrics.series import Run, runs
from meshwright.diagnose.topics import TOPICS


def read(tmp_path: Path) -> list[Run]:
    """The series of all files."""
    return list(runs(read_inputs([tmp_path], TOPICS)))


LINES = {
    # torchtitan, issue texts
    "[titan] 2024-10-01 10:00:00,123 - root - INFO - step:  4  loss: 12.8042  grad_norm: 38.8119  memory: "
    "72.19GiB(91.27%)"
    "  tps: 1,125  tflops: 30.17  mfu: 3.05%": {
        "step": 4, "loss": 12.8042, "grad_norm": 38.8119, "memory_gib": 72.19, "memory_share": 0.9127,
        "tokens_per_second": 1125, "tflops": 30.17, "mfu": 0.0305,
    },
    # Megatron-LM#673
    " [2025-02-20 11:18:37] iteration        2/     100 | consumed samples:            8 | elapsed time per "
    "iteration (ms): "
    "370.3 | throughput per GPU (TFLOP/s/GPU): 1.5 | learning rate: 1.000000E-05 | global batch size:     4 | lm loss: "
    "6.612992E+00 | loss scale: 1.0 | grad norm: 111.173 | number of skipped iterations:   0 | number of nan "
    "iterations:"
    "   0 |": {
        "step": 2, "total": 100, "seconds": 0.3703, "tflops": 1.5, "lr": 1e-5, "global_batch": 4, "loss": 6.612992,
        "loss_scale": 1, "grad_norm": 111.173, "skipped_here": 0, "nans": 0,
    },
    # nanotron
    "iteration: 10 / 100 | consumed_tokens: 1.2M | elapsed_time_per_iteration_ms: 1.2K | tokens_per_sec: 345K | "
    "tokens_per_sec_per_gpu: 43K | global_batch_size: 1.02K | lm_loss: 10.9 | lr: 0.0001 | grad_norm: 1.2": {
        "step": 10, "total": 100, "seconds": 1.2, "tokens_per_second": 345e3, "tokens_per_gpu": 43e3,
        "global_batch": 1020, "loss": 10.9, "lr": 1e-4, "grad_norm": 1.2,
    },
    # transformers Trainer
    "{'loss': 2.31, 'grad_norm': 1.2, 'learning_rate': 5e-05, 'epoch': 0.1}": {
        "loss": 2.31, "grad_norm": 1.2, "lr": 5e-5, "epoch": 0.1,
    },
    # DeepSpeed#931
    "[2023-04-28 06:59:46,878] [INFO] [logging.py:96:log_dist] [Rank 0] step=510, skipped=8, lr=[9.65e-06, 9.65e-06], "
    "mom=[(0.9, 0.95), (0.9, 0.95)]": {"rank": 0, "step": 510, "skipped": 8, "lr": 9.65e-6},
    "rank 3 step 7 loss 2.345": {"rank": 3, "step": 7, "loss": 2.345},
    "Epoch 0:  10%|#| 5/50 [00:01<00:10, 4.1it/s, v_num=1, loss=2.31]": {"epoch": 0, "loss": 2.31},
    # NeMo-RL#1844
    "Training Model Floating Point Utilization: 0.84%": {"mfu": 0.0084},
    "step 00019/13920 (0.14%) | loss: 6.817907 | mfu: 48.09": {  # nanochat
        "step": 19, "total": 13920, "loss": 6.817907, "mfu": 0.4809,
    },
    "Total step time: 0.33s": {"seconds": 0.33},
    # ours: train/metrics/progress.py
    "step   10/1,000  loss 5.5312  grad norm 2.1  12,345 tokens/s  MFU 31.2%  memory 1.2 GiB  left 3 s": {
        "step": 10, "total": 1000, "loss": 5.5312, "grad_norm": 2.1, "mfu": 0.312, "memory_gib": 1.2,
    },
    # fairseq#515
    "| epoch 001:    200 / 1374 loss=14.351, ppl=20899.56, wps=49604, num_updates=190, lr=4.84525e-06, gnorm=3.901, "
    "loss_scale=0.062": {
        "epoch": 1, "loss": 14.351, "tokens_per_second": 49604, "step": 190, "lr": 4.84525e-6, "grad_norm": 3.901,
        "loss_scale": 0.062,
    },
}  # fmt: skip


@pytest.mark.parametrize("line", list(LINES))
def test_the_numbers_of_a_line(line: str) -> None:
    assert numbers(line) == pytest.approx(LINES[line])


def test_a_nan_is_a_number_that_is_none() -> None:
    assert math.isnan(numbers("{'loss': nan, 'grad_norm': 1.0, 'epoch': 0.1}")["loss"])


def test_each_rank_is_a_series_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "all.log").write_text(
        "".join(f"[rank{r}]: step: {s} loss: {r + s}.5\n" for s in range(4) for r in range(3))
    )
    assert [(run.rank, len(run.points)) for run in read(tmp_path)] == [(0, 4), (1, 4), (2, 4)]


def test_trainer_state_and_golden_values_and_metrics_jsonl_are_read(tmp_path: Path) -> None:
    history = [{"epoch": 0.1, "grad_norm": 1.0, "learning_rate": 1e-4, "loss": 2.5, "step": s} for s in (10, 20)]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": history, "global_step": 20}))
    golden = {"lm loss": {"start_step": 1, "values": {"1": "nan", "2": 10.8, "3": 10.7}},
              "iteration-time": {"values": {"2": 0.5, "3": 0.4}}}  # fmt: skip
    (tmp_path / "golden_values.json").write_text(json.dumps(golden))
    step = {"loss": 5.5, "grad_norm": 1.0, "lr": 1e-3, "seconds": 0.25, "memory_bytes": 2**31, "skipped": False}
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps({"step": s, **step}) + "\n" for s in range(1, 6)))
    found = {Path(run.path).name: run for run in read(tmp_path)}
    assert [point.step for point in found["trainer_state.json"].points] == [10, 20]
    assert [(point.step, point.values["loss"]) for point in found["golden_values.json"].points] == [
        (2, 10.8),
        (3, 10.7),
    ]
    assert found["metrics.jsonl"].points[4].values["memory_gib"] == 2.0


def test_a_validation_loss_is_not_the_training_s(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(
        " validation loss at iteration 10 | lm loss value: 3.1E+00 | lm loss PPL: 2.2E+01 |\nstep 10 loss 2.5\n"
    )
    assert [one.values["loss"] for run in read(tmp_path) for one in run.points if "loss" in one.values] == [2.5]


@pytest.mark.parametrize(
    "text",
    ["step: " + "9" * 4000 + " loss: 1.0", "step: 1 loss: "
        "1e99999", "step: -5 loss: 2", "loss: nan" * 500, "loss: 1,,,,2",
     '{"step": 1e308, "loss": 1}', '{"step": null, "loss": null}', '{"loss": [1]}',
     "step: 1 loss: " + "1" * 31, "loss step" + "a" * 3990,
     "OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 1e999, reducing to 1e-300"],
)  # fmt: skip
def test_hostile_numbers_do_no_harm(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.log").write_text(f"INFO start\n{text}\n{text}\n")
    diagnose([tmp_path])


@pytest.mark.parametrize("parsed", ['{"log_history": [1, null, {"loss": "x"}]}', '{"lm loss": {"values": [null, {}]}}'])
def test_broken_histories_do_no_harm(tmp_path: Path, parsed: str) -> None:
    (tmp_path / "a.json").write_text(parsed)
    assert diagnose([tmp_path]).findings == ()


def test_a_long_log_is_kept_in_part_and_its_end_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "MOST_POINTS", 4000)
    steps = 20_000
    lines = (f"step {step} | loss {'nan' if step == steps else 2.5} | grad norm 0.9\n" for step in range(1, steps + 1))
    (tmp_path / "out.log").write_text("".join(lines))
    facts = read_inputs([tmp_path], TOPICS)
    (run,) = runs(facts)
    assert len(run.points) <= 4000
    assert (run.points[0].step, run.points[-1].step, run.printed) == (1, steps, steps)
    assert any("from step 20000" in one.cause for one in judge(facts).findings)
