"""The summary says what a reader would work out by hand from the table."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from meshwright.bench.result import FAILED, OUT_OF_MEMORY, Agreement, Bench, Row
from meshwright.report.study import make_study
from meshwright.report.words import plan_sentence, progress, summary
from tests.report.example import LONG, WORK, bench, done


def of(*rows: Row, baseline: str = "ddp4", agreement: Agreement | None = None) -> tuple[str, ...]:
    """The summary of a bench of these rows."""
    return summary(make_study([("run", bench(rows=rows, baseline=baseline, agreement=agreement))]))


def test_the_example_reads_as_worked_out_by_hand() -> None:
    # ddp4: 100 ms, 10 GiB. LONG: 80 ms, 6 GiB. fsdp4: 109 ms, 3.8 GiB. 8192 tokens a step.
    assert summary(make_study([("run", bench())])) == (
        f"{LONG} was fastest: 80 ms a step, 102 K tokens/s; it used 60 % of ddp4's memory and took 20 % less time "
        "a step.",
        "fsdp4 used 38 % of ddp4's memory and was 9 % slower; with 3.8 GiB on the fullest rank it used the least.",
        f"No other layout is both faster and smaller than {LONG} and fsdp4.",
        "3 of 9 layouts were not measured: tp4 mbs32 (out of memory: rank 2: 14.2 GiB asked, 12 GiB free); "
        "tp8 (refused: 8 ranks are asked for, the machine has 4); cp4:ring (failed: rank 1 ended with signal 11).",
        f"The losses of 5 layouts follow ddp4's within a relative 2.0e-04 ({LONG}).",
        "The plan was right: the layout that it put first was the fastest (Spearman 1.00 over 5 rows); "
        "step times were 5.5 % off, memory 10 % (medians).",
    )


def test_the_issue_s_own_sentence() -> None:
    told = of(done("ddp4", 0.1, 10.0), done("fsdp4", 0.109, 3.8))
    assert any(sentence.startswith("fsdp4 used 38 % of ddp4's memory and was 9 % slower") for sentence in told)


def test_what_lies_within_the_spreads_is_noise() -> None:
    # 98 to 102 ms against 99.96 to 104.04 ms overlap; against 103.88 to 108.12 ms they do not.
    near = of(done("ddp4", 0.100, 10.0), done("fsdp4", 0.102, 5.0))
    assert (
        near[0] == "The baseline ddp4 was fastest: 100 ms a step, 81.9 K tokens/s. fsdp4 was as fast within the noise."
    )
    assert near[1].startswith("fsdp4 used 50 % of ddp4's memory and was as fast within the noise;")
    far = of(done("ddp4", 0.100, 10.0), done("fsdp4", 0.106, 5.0))
    assert far[0] == "The baseline ddp4 was fastest: 100 ms a step, 81.9 K tokens/s."
    assert "and was 6 % slower" in far[1]


@pytest.mark.parametrize(
    ("seconds", "gib", "told"),
    [
        (0.25, 5.0, "used 50 % of ddp4's memory and took 2.5 times as long"),
        (0.05, 25.0, "used 2.5 times ddp4's memory and took 50 % less time a step"),
        (0.05, 13.0, "used 30 % more memory than ddp4 and took 50 % less time a step"),
        (0.05, 10.01, "used as much memory as ddp4 and took 50 % less time a step"),
        (0.112, 0.42, "used 4.2 % of ddp4's memory and was 12 % slower"),
    ],
)
def test_ratios_are_told_by_their_size(seconds: float, gib: float, told: str) -> None:
    assert any(
        f"x {told}" in line or f"it {told}" in line for line in of(done("ddp4", 0.1, 10.0), done("x", seconds, gib))
    )


def test_a_row_without_memory_is_compared_by_time() -> None:
    told = of(done("ddp4", 0.1, 10.0), replace(done("tp4", 0.05, 1.0), memory_bytes=None))
    assert told[0].endswith("it took 50 % less time a step (against ddp4).")
    assert told[1] == "The baseline ddp4 used the least memory: 10 GiB on the fullest rank."


def test_one_layout_may_be_best_in_both() -> None:
    assert "tp4 is both the fastest and the smallest." in of(done("ddp4", 0.1, 10.0), done("tp4", 0.05, 1.0))


def test_without_a_measured_baseline_nothing_is_compared() -> None:
    told = of(Row("ddp4", "ddp4", 4, OUT_OF_MEMORY), done("fsdp4", 0.1, 2.0), done("tp4", 0.2, 1.0))
    assert told == (
        "fsdp4 was fastest: 100 ms a step, 81.9 K tokens/s.",
        "tp4 used the least memory: 1 GiB on the fullest rank.",
        "No other layout is both faster and smaller than fsdp4 and tp4.",
        "1 of 3 layouts was not measured: ddp4 (out of memory).",
    )


def test_a_bench_of_failures_only_says_so() -> None:
    rows = [Row(f"tp{n}", f"tp{n}", n, FAILED, reason="a\nb " * 200) for n in range(1, 9)]
    first, second = of(*rows)
    assert first == "No layout has been measured."
    assert second.startswith("8 of 8 layouts were not measured: tp1 (failed: a b a b")
    assert second.endswith("; and 2 more, see the table.")
    assert "…" in second
    assert "\n" not in second


def test_a_done_row_without_a_step_time_is_not_measured() -> None:
    broken = replace(done("x", 0.1, 1.0), step=None)
    assert of(done("ddp4", 0.1, 10.0), broken)[1] == "1 of 2 layouts was not measured: x (no step time)."


@pytest.mark.parametrize(
    ("shift", "told"),
    [
        (0.034, "The loss of x differs from ddp4's by up to 3.4 %: it did not train the same."),
        (5e-6, "The loss of x follows ddp4's within a relative 5.0e-06."),
        (math.nan, "The loss of x is not finite, or its reference's is not."),
    ],
)
def test_the_loss_beside_the_baseline_s(shift: float, told: str) -> None:
    assert of(done("ddp4", 0.1, 10.0), replace(done("x", 0.2, 20.0), loss_error=shift))[-1] == told


@pytest.mark.parametrize(
    ("agreement", "told"),
    [
        (Agreement(12, 0.93, 0.031, 0.081), "The plan was right: taking the layout that it put first loses 3.1 % of "
         "the throughput (Spearman 0.93 over 12 rows); step times were 8.1 % off (medians)."),
        (Agreement(12, 0.61, 0.0, 0.08, 0.2), "The plan was not right: the layout that it put first was the fastest "
         "(Spearman 0.61 over 12 rows); step times were 8 % off, memory 20 % (medians)."),
        (Agreement(2, None, 0.2, 0.08), "The plan was not right: taking the layout that it put first loses 20 % of the "
         "throughput (2 rows have a prediction, too few to rank); step times were 8 % off (medians)."),
    ],
)  # fmt: skip
def test_whether_the_plan_was_right(agreement: Agreement, told: str) -> None:
    assert plan_sentence(agreement) == told


@pytest.mark.parametrize("wrong", [{"spearman": 0.79}, {"regret": 0.051}, {"median_step_error": 0.21}])
def test_a_plan_is_right_only_in_order_choice_and_time(wrong: dict[str, float]) -> None:
    good = Agreement(12, 0.8, 0.05, 0.2)
    assert plan_sentence(good).startswith("The plan was right")
    assert plan_sentence(replace(good, **wrong)).startswith("The plan was not right")  # type: ignore[arg-type]


def test_progress_is_told_only_of_a_bench_that_is_not_done() -> None:
    assert progress(bench(planned=40, finished=17)) == "17 of 40 runs done"
    assert progress(bench(planned=40, finished=40)) == ""


def two(**work: Any) -> list[tuple[str, Bench]]:
    """Two runs; the second one's work has these changes, and its layouts take half the time."""
    return [
        ("monday", bench(rows=(done("ddp4", 0.1, 10.0),), agreement=None)),
        ("tuesday", bench(rows=(done("ddp4", 0.05, 10.0),), agreement=None, work=WORK | work)),
    ]


def test_runs_of_the_same_work_are_compared_with_the_first_one_s_baseline() -> None:
    told = summary(make_study(two(steps=99)))
    assert told[0] == (
        "tuesday: ddp4 was fastest: 50 ms a step, 164 K tokens/s; "
        "it used as much memory as monday: ddp4 and took 50 % less time a step."
    )


def test_runs_of_different_work_are_not_compared() -> None:
    told = summary(make_study(two(global_batch=64, precision="fp32")))
    assert told[0] == (
        "The runs cannot be compared, because their work differs in global_batch (monday: 32, tuesday: 64); precision "
        "(monday: bf16, tuesday: fp32). Each is judged by itself."
    )
    assert told[1] == "monday: The baseline ddp4 was fastest: 100 ms a step, 81.9 K tokens/s."
    assert told[2] == "tuesday: The baseline ddp4 was fastest: 50 ms a step, 164 K tokens/s."
    assert len(told) == 3


def test_the_loss_is_held_against_one_process_where_it_ran() -> None:
    one = replace(done("one process", 0.4, 12.0, ranks=1), loss_error=0.0)
    told = of(replace(done("ddp4", 0.1, 10.0), loss_error=2e-7), one, replace(done("tp4", 0.2, 20.0), loss_error=1e-7))
    assert told[-1] == "The losses of 2 layouts follow one process's within a relative 2.0e-07 (ddp4)."
