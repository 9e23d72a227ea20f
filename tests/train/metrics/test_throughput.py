"""Tokens a second and MFU, by hand calculation."""

from __future__ import annotations

import pytest

from meshwright.spec.model import Model
from meshwright.spec.workload import make_workload
from meshwright.train.metrics.throughput import Throughput, mfu


def test_the_first_step_counts_only_while_it_is_the_only_one() -> None:
    meter = Throughput()
    meter.add(100, 10.0)
    assert meter.tokens_per_second == 10.0
    meter.add(100, 1.0)
    assert (meter.tokens_per_second, meter.step_seconds) == (100.0, 1.0)


def test_one_slow_step_does_not_move_the_median() -> None:
    meter = Throughput()
    for seconds in (9.0, 1.0, 1.0, 30.0, 1.0, 1.0):
        meter.add(100, seconds)
    assert meter.tokens_per_second == 100.0


def test_only_the_last_steps_count() -> None:
    meter = Throughput(window=3)
    for seconds in (9.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0):
        meter.add(100, seconds)
    assert meter.step_seconds == 2.0


def test_before_the_first_step_there_is_no_speed() -> None:
    with pytest.raises(ValueError, match="No step"):
        _ = Throughput().tokens_per_second


def test_mfu_is_six_flops_a_parameter_and_token_and_attention_against_the_peak() -> None:
    # 2 layers of width 8, 2 heads of 4, feed-forward 16 gated, vocabulary 32:
    # a layer multiplies 4·8·8 + 3·8·16 = 640 weights, the head 8·32 = 256: N = 1,536.
    model = Model("m", layers=2, hidden=8, heads=2, kv_heads=2, head_dim=4, ffn_hidden=16, vocab=32)
    workload = make_workload(seq_len=10, global_batch=3, precision="fp32")
    tokens = 30
    flops = 6 * 1536 * tokens + 12 * 2 * 2 * 4 * 10 * tokens  # PaLM, arXiv:2204.02311 appendix B
    assert flops == 334_080
    assert mfu(model, workload, step_seconds=0.5, devices=4, peak_flops=1e6) == pytest.approx(334_080 / 2e6)
