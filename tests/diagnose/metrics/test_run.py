"""One run's series: learning rate, data, step times, use of the hardware."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.finding import INFO, LIKELY, POSSIBLE, Finding
from meshwright.diagnose.topics import TOPICS


def told(tmp_path: Path, text: str = "", config: dict[str, object] | None = None) -> list[Finding]:
    if text:
        (tmp_path / "train.log").write_text(text)
    if config:
        (tmp_path / "config.json").write_text(json.dumps(config))
    # What the words of so short a text may mean is for the last resort.
    topics = [one for one in TOPICS if not one.last_resort]
    return [one for one in diagnose([tmp_path], topics).findings if one.severity != INFO]


def cosine(times: int, total: int = 1000) -> str:
    """A cosine schedule that advances `times` a step, as transformers' get_cosine_schedule_with_warmup computes it."""
    rates = ((s, 0.5 * (1 + math.cos(math.pi * s * times / total))) for s in range(0, total, 5))
    return "".join(f"step: {s}/{total} loss: {5 - s / total:.4f} lr: {rate:.8f}\n" for s, rate in rates)


def test_a_schedule_that_advances_once_for_each_process_repeats(tmp_path: Path) -> None:
    # RuiningLi/particulate#22: eight scheduler steps per update.
    found = told(tmp_path, cosine(8), {"num_processes": 8, "mixed_precision": "bf16", "num_layers": 2})
    assert [(one.category, one.confidence) for one in found] == [("lr_schedule_scaling", LIKELY)]
    assert "step 125" in found[0].cause or "step 120" in found[0].cause


def test_a_linear_schedule_that_ends_at_a_quarter(tmp_path: Path) -> None:
    # Lightricks/LTX-Video-Trainer#67: 4 GPUs, the end of 10000 steps at 2500.
    lines = (f"step: {s}/10000 loss: 1.5{s} lr: {max(1 - s / 2500, 0) * 1e-4:.8f}\n" for s in range(0, 10000, 100))
    assert [(one.category, one.confidence) for one in told(tmp_path, "".join(lines), {"gpus": 4, "num_layers": 2})] == [
        ("lr_schedule_scaling", LIKELY)
    ]


@pytest.mark.parametrize("end", [1000, 800])
def test_a_schedule_that_ends_with_the_run_or_somewhat_before_is_healthy(tmp_path: Path, end: int) -> None:
    lines = (f"step: {s}/1000 loss: 1.5{s} lr: {max(1 - s / end, 0) * 1e-4:.8f}\n" for s in range(0, 1000, 10))
    assert told(tmp_path, "".join(lines), {"gpus": 8, "num_layers": 2}) == []


def test_ranks_that_each_print_the_same_loss_may_read_the_same_data(tmp_path: Path) -> None:
    text = "".join(f"rank {rank} step {s} loss {3.12345 - s / 7:.5f}\n" for s in range(6) for rank in range(4))
    found = told(tmp_path, text)
    assert [(one.category, one.confidence, one.ranks) for one in found] == [("data_sharding", POSSIBLE, (0, 1, 2, 3))]


@pytest.mark.parametrize(
    "line",
    ["rank {r} step {s} loss {own:.5f}", "[rank{r}]: step: {s} loss: {mean:.5f} grad_norm: 1.25"],
    ids=["own losses", "a mean over ranks"],
)
def test_losses_of_a_healthy_job(tmp_path: Path, line: str) -> None:
    text = "".join(
        line.format(r=rank, s=s, own=3 - s / 7 + rank / 100, mean=3.12345 - s / 7) + "\n"
        for s in range(6)
        for rank in range(4)
    )
    assert told(tmp_path, text) == []


def test_epochs_with_the_same_losses(tmp_path: Path) -> None:
    text = "".join(f"epoch: {e} loss: {2 + math.sin(b):.5f}\n" for e in range(2) for b in range(20))
    assert [one.category for one in told(tmp_path, text)] == ["data_sharding"]


def timed(seconds: list[float], extra: str = "") -> str:
    return "".join(
        f"step: {s} loss: {5 - s / 100:.3f} step_time: {value:.4f}{extra}\n" for s, value in enumerate(seconds, 1)
    )


@pytest.mark.parametrize(("workers", "found"), [(8, [("dataloader_bound", LIKELY)]), (6, [])])
def test_a_slow_step_for_every_worker(tmp_path: Path, workers: int, found: list[tuple[str, str]]) -> None:
    # mlfoundations/open_clip#703
    text = timed([2.0 if s % 8 == 0 else 0.5 for s in range(1, 65)])
    assert [
        (one.category, one.confidence) for one in told(tmp_path, text, {"num_workers": workers, "gpus": 8})
    ] == found


@pytest.mark.parametrize(("wait", "found"), [(0.2, ["dataloader_bound"]), (0.01, [])])
def test_a_large_share_of_waiting_for_data(tmp_path: Path, wait: float, found: list[str]) -> None:
    assert [one.category for one in told(tmp_path, timed([0.5] * 20, f" data_time: {wait}"))] == found


@pytest.mark.parametrize(
    ("growth", "extra", "found"),
    [(0.02, " load_balancing_loss: 1.1", ["moe_imbalance"]), (0.0, " load_balancing_loss: 1.1", []), (0.02, "", [])],
)
def test_steps_of_a_mixture_of_experts_that_grow(tmp_path: Path, growth: float, extra: str, found: list[str]) -> None:
    # verl PR#4103
    assert [one.category for one in told(tmp_path, timed([0.5 + growth * s for s in range(60)], extra))] == found


@pytest.mark.parametrize(("counts", "found"), [("900, 40, 30, 30", ["moe_imbalance"]), ("260, 250, 240, 250", [])])
def test_tokens_of_experts(tmp_path: Path, counts: str, found: list[str]) -> None:
    # 900 of a mean of 250.
    assert [one.category for one in told(tmp_path, f"INFO tokens per expert: [{counts}]\n")] == found


@pytest.mark.parametrize(("pause", "found"), [("1.25-1.46 s", ["straggler_gc"]), ("12 ms", [])])
def test_pauses_of_the_collector(tmp_path: Path, pause: str, found: list[str]) -> None:
    # marin-community/marin#9224
    assert [one.category for one in told(tmp_path, f"INFO gen-2 pass pause {pause}\n")] == found


def test_more_flops_than_the_hardware_has(tmp_path: Path) -> None:
    text = "".join(f"step: {s} loss: 2.5 tflops: 800 mfu: {mfu}%\n" for s, mfu in enumerate((131.2, 133.1, 132.5)))
    assert [(one.category, one.confidence) for one in told(tmp_path, text)] == [("pipeline_layout", LIKELY)]


@pytest.mark.parametrize(
    ("seconds", "mfu", "found"), [(0.33, 0.84, ["low_mfu_small_work"]), (0.33, 38, []), (8, 0.9, [])]
)
def test_little_work_on_many_gpus(tmp_path: Path, seconds: float, mfu: float, found: list[str]) -> None:
    # NVIDIA-NeMo/RL#1844
    text = f"Training Model Floating Point Utilization: {mfu}%\nTotal step time: {seconds}s\n"
    said = told(tmp_path, text, {"gpus": "2 x 8 H100", "model": "a 1B model"})
    assert [one.category for one in said] == found
    assert {one.confidence for one in said} <= {POSSIBLE}


def test_a_host_that_cannot_launch_fast_enough(tmp_path: Path) -> None:
    # huggingface/lerobot#4612
    text = "INFO GPU busy about 30% of the time\nINFO issued about 1150 small kernels per step\n"
    assert [(one.category, one.confidence) for one in told(tmp_path, text)] == [("cpu_launch_bound", POSSIBLE)]


def test_a_healthy_run_yields_nothing_and_says_what_was_looked_at(tmp_path: Path) -> None:
    (tmp_path / "rank_0.log").write_text(
        "".join(
            f"[titan] - INFO - step: {s}  loss: {12 * math.exp(-s / 50):.4f}  grad_norm: {3 + math.sin(s):.4f}  "
            f"memory: 72.19GiB(91.27%)  tps: {5000 + s % 7}  tflops: 300.17  mfu: 31.05%\n"
            for s in range(1, 200)
        )
    )
    found = diagnose([tmp_path])
    assert found.findings == ()
    assert any("199 steps" in line for line in found.checked)
