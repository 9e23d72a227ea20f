"""Steps that wait for data, in the forms in which programs print them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.finding import INFO, LIKELY, WARNING, Finding

FORMS: list[Callable[[int, float, float], str]] = [
    lambda s, t, d: f"step {s} loss {6 - s / 100:.4f} step_time {t:.3f} data_time {d:.3f}",
    lambda s, t, d: f"step: {s} loss: {6 - s / 100:.4f} step_time: {t:.3f} data_time: {d:.3f}",
    lambda s, t, d: f'{{"step": {s}, "loss": {6 - s / 100:.4f}, "step_time": {t}, "data_time": {d}}}',
    lambda s, t, d: f"step {s} | loss {6 - s / 100:.4f} | iter time {t * 1000:.1f} ms | data loading time {d * 1e3} ms",
    lambda s, t, d: f" iteration {s:8d}/ 500 | iteration time (ms): {t * 1e3:.1f} | data loading time (ms): {d * 1e3}",
    # torchtitan/components/metrics.py
    lambda s, t, d: (
        f"[rank0]:[titan] 2026-11-23 10:00:01,000 - root - INFO - step: {s:2}  loss: {6 - s / 100:.4f}  "
        f"time_metrics/end_to_end(s): {t}  time_metrics/data_loading(s): {d:.3f}"
    ),
    lambda s, t, d: f"step: {s:2}  loss: {6 - s / 100}  step_time: {t} time_metrics/data_loading(%): {100 * d / t:.2f}",
    # pytorch/examples imagenet/main.py (and issue #164 there)
    lambda s, t, d: f"Epoch: [0][{s:4d}/5005]\tTime {t:6.3f} ( 1.175)\tData {d:6.3f} ( 0.675)\tLoss {7 - s / 100:.4e}",
    # open-mmlab/mmdetection#4090
    lambda s, t, d: (
        f"2020-11-11 18:27:52,420 - mmdet - INFO - Epoch [1][{s}/29317]\tlr: 2.000e-02, eta: 1 day, 16:24:41, "
        f"time: {t:.3f}, data_time: {d:.3f}, memory: 3946, loss: {2 - s / 100:.4f}"
    ),
    # facebookresearch/detectron2#195
    lambda s, t, d: (
        f"[11/01 11:27:04 d2.utils.events]: eta: 8:05:12  iter: {s}  total_loss: 1.012  time: {t:.4f}  "
        f"data_time: {d:.4f}  lr: 0.010000  max_mem: 3961M"
    ),
    # torchvision's references (fangwei123456/Spike-Element-Wise-ResNet#10)
    lambda s, t, d: (
        f"Epoch: [0]  [ {s}/5005]  eta: 4:43:31  lr: 0.1  loss: {7 - s / 100:.4f} (6.94)  time: {t:.4f}  "
        f"data: {d:.4f}  max mem: 3524"
    ),
]  # fmt: skip


def told(folder: Path, form: Callable[[int, float, float], str], times: Callable[[int], tuple[float, float]]) -> str:
    lines = [form(step, *times(step)) for step in range(1, 61)]
    (folder / "train.log").write_text("\n".join(lines) + "\n")
    return "".join(one.cause for one in found(folder))


def found(folder: Path) -> list[Finding]:
    return [one for one in diagnose([folder]).findings if one.severity != INFO]


@pytest.mark.parametrize("form", FORMS)
def test_every_fourth_step_that_waits_makes_the_loader_the_bound(
    tmp_path: Path, form: Callable[[int, float, float], str]
) -> None:
    # By hand: (2.4 + 3 × 0.1) / (2.9 + 3 × 0.6) = 57 % of all time.
    cause = told(tmp_path, form, lambda s: (2.9, 2.4) if s % 4 == 0 else (0.6, 0.1))
    assert {(one.category, one.severity, one.confidence) for one in found(tmp_path)} == {
        ("dataloader_bound", WARNING, LIKELY)
    }
    assert "57% of the time" in cause or "58% of the time" in cause  # without the steps of the warm-up
    assert (
        "Every 4 steps one takes up to 4.8 times as long, and what it takes longer is the time that it waits" in cause
    )


@pytest.mark.parametrize("form", FORMS)
def test_small_waits_and_one_long_one_are_healthy(tmp_path: Path, form: Callable[[int, float, float], str]) -> None:
    told(tmp_path, lambda *a: form(*a).replace("1.175", "0.650").replace("0.675", "0.050"),
         lambda s: (60.5, 60.0) if s == 30 else (0.6, 0.05))  # fmt: skip
    assert found(tmp_path) == []


def test_slow_steps_that_do_not_wait_for_data_are_not_the_loaders(tmp_path: Path) -> None:
    told(tmp_path, FORMS[0], lambda s: (2.9, 0.1) if s % 4 == 0 else (0.6, 0.1))
    assert [one.category for one in diagnose([tmp_path]).findings] == ["straggler_gc"]


def test_an_evaluation_is_no_part_of_the_training(tmp_path: Path) -> None:
    train = [FORMS[6](s, 0.6, 0.1).replace("1.175", "0.650").replace("0.675", "0.050") for s in range(1, 31)]
    test = [f"Test: [{s:3d}/196]\tTime  3.456 ( 3.456)\tLoss nan (nan)\tAcc@1  10.00 ( 10.00)" for s in range(1, 31)]
    (tmp_path / "a.log").write_text("\n".join(train + test) + "\n")
    assert found(tmp_path) == []
