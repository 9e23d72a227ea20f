"""The progress line: one line that changes on a terminal, a plain line every few steps off it."""

from __future__ import annotations

import logging
import sys
from collections import deque
from statistics import median
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from meshwright.spec.units import binary, duration, percent
from meshwright.train.metrics.step import StepReport

if TYPE_CHECKING:
    from rich.live import Live

logger = logging.getLogger(__name__)

WINDOW = 50
"""Steps whose median duration the time left is guessed from."""


def progress_text(report: StepReport, total: int, seconds_left: float | None) -> str:
    """The line of one step: step, loss, gradient norm, tokens/s, MFU (– without a known peak), memory, time left."""
    width = len(f"{total:,}")
    parts = [
        f"step {report.step:>{width},}/{total:,}",
        f"loss {report.loss:.4f}",
        f"grad norm {report.grad_norm:.3g}",
        f"{report.tokens_per_second:,.0f} tokens/s",
        f"MFU {'–' if report.mfu is None else percent(report.mfu)}",
        f"memory {binary(report.memory_bytes)}",
        f"left {'–' if seconds_left is None else duration(round(seconds_left))}",
    ]
    if report.skipped:
        parts.insert(3, "skipped")
    if report.eval_loss is not None:
        parts.insert(2, f"eval loss {report.eval_loss:.4f}")
    return "  ".join(parts)


class Progress:
    """Shows the reports of a run of `total` steps on `stream` (stderr); a context manager that leaves the last line.

    Off a terminal it prints every `every` steps, the first one, the last one, and those that evaluate or skip. The log
    file has these, too.
    """

    def __init__(self, total: int, every: int = 10, stream: TextIO | None = None) -> None:
        self._total, self._every = total, every
        self._stream = sys.stderr if stream is None else stream
        self._seconds: deque[float] = deque(maxlen=WINDOW)
        self._first: int | None = None
        self._live: Live | None = None

    def show(self, report: StepReport) -> None:
        """Show one step."""
        if self._first is None:
            self._first = report.step
        else:
            self._seconds.append(report.seconds)  # the first step warms up
        text = progress_text(report, self._total, self.seconds_left(report.step))
        live = self._stream.isatty()
        if live:
            self._draw(text)
        if self._prints(report):
            logger.info(text, extra={"file_only": True})
            if not live:
                print(text, file=self._stream, flush=True)

    def seconds_left(self, step: int) -> float | None:
        """Seconds until the last step by the median of the last ones; None: not known yet."""
        return median(self._seconds) * (self._total - step) if self._seconds else None

    def _prints(self, report: StepReport) -> bool:
        told = report.skipped or report.eval_loss is not None
        return told or report.step in (self._first, self._total) or report.step % self._every == 0

    def _draw(self, text: str) -> None:
        from rich.text import Text

        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            # Log messages on the same terminal appear above the line.
            self._live = Live(console=Console(file=self._stream), refresh_per_second=8, redirect_stdout=False)
            self._live.start()
        self._live.update(Text(text, no_wrap=True, overflow="ellipsis"))

    def close(self) -> None:
        """Leave the last line where it is."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
