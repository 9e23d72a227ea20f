"""The progress line, by numbers made by hand."""

from __future__ import annotations

import io

import pytest

from meshwright.train.metrics.progress import Progress, progress_text

from .reports import report


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_line_tells_step_loss_norm_speed_mfu_memory_and_time_left() -> None:
    line = progress_text(report(7, mfu=0.4321), 1200, 600.4)
    assert line == (
        "step     7/1,200  loss 2.5000  grad norm 0.125  8,192 tokens/s  MFU 43.2 %  memory 3 GiB  left 10.0 min"
    )


def test_what_is_not_known_is_a_dash() -> None:
    line = progress_text(report(1), 10, None)
    assert "MFU –" in line
    assert line.endswith("left –")


def test_a_skipped_step_and_an_evaluation_are_told() -> None:
    assert "skipped" in progress_text(report(1, skipped=True), 10, None)
    assert "eval loss 2.7500" in progress_text(report(1, eval_loss=2.75), 10, None)


def test_off_a_terminal_every_nth_line_the_first_and_the_last_are_printed() -> None:
    out = io.StringIO()
    with Progress(total=12, every=5, stream=out) as progress:
        for step in range(3, 13):
            progress.show(report(step, skipped=step == 7))
    shown = [int(line.split("/")[0].removeprefix("step")) for line in out.getvalue().splitlines()]
    assert shown == [3, 5, 7, 10, 12]
    assert "\x1b" not in out.getvalue()


def test_time_left_is_the_median_step_times_the_steps_left_without_the_first() -> None:
    progress = Progress(total=100, stream=io.StringIO())
    progress.show(report(1, seconds=60.0))
    assert progress.seconds_left(1) is None
    for step, seconds in ((2, 2.0), (3, 1.0), (4, 40.0)):
        progress.show(report(step, seconds=seconds))
    assert progress.seconds_left(4) == 2.0 * 96


def test_on_a_terminal_one_line_is_drawn_and_the_last_step_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    with Progress(total=3, stream=out) as progress:
        for step in (1, 2, 3):
            progress.show(report(step))
    drawn = out.getvalue()
    assert drawn.startswith("\x1b[?25l")  # the cursor is hidden while the line changes, and then shown again
    assert drawn.rstrip().endswith("\x1b[?25h")
    assert drawn.count("\n") == 1
    assert "step 3/3" in drawn.split("\n")[0]
