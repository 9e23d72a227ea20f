"""Each rank has its log file; the first one also speaks on the terminal."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshwright.spec.errors import RequestError
from meshwright.train.metrics.logs import LOGGER, log_path, set_up_logs


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    yield
    logging.captureWarnings(False)
    for name in (LOGGER, "py.warnings"):
        logger = logging.getLogger(name)
        for handler in list(logger.handlers):
            logger.removeHandler(handler)
            handler.close()
        logger.propagate = True


def test_a_rank_logs_to_its_file_and_the_first_one_to_the_terminal_too(tmp_path: Path) -> None:
    for rank in (0, 3):
        terminal = io.StringIO()
        set_up_logs(tmp_path, rank, terminal=terminal)
        logging.getLogger("meshwright.train.loop").info("resumed from step %d", 7)
        text = log_path(tmp_path, rank).read_text()
        assert f"rank {rank} INFO meshwright.train.loop: resumed from step 7\n" in text
        assert terminal.getvalue() == ("resumed from step 7\n" if rank == 0 else "")
    assert log_path(tmp_path, 3) == tmp_path / "logs" / "rank-0003.log"


def test_a_resumed_run_appends(tmp_path: Path) -> None:
    for word in ("one", "two"):
        set_up_logs(tmp_path, 1).info(word)
    assert [line.rsplit(" ", 1)[1] for line in log_path(tmp_path, 1).read_text().splitlines()] == ["one", "two"]


def test_warnings_go_to_the_file_and_not_to_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    terminal = io.StringIO()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        set_up_logs(tmp_path, 0, terminal=terminal)
        warnings.warn("old API", stacklevel=1)
        logging.captureWarnings(False)
    assert "old API" in log_path(tmp_path, 0).read_text()
    assert "old API" not in terminal.getvalue() + capsys.readouterr().err


def test_messages_appear_above_a_live_progress_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import sys

    logger = set_up_logs(tmp_path, 0)
    before, sys.stderr = sys.stderr, io.StringIO()  # as a live line does
    try:
        logger.info("checkpoint saved")
        assert sys.stderr.getvalue() == "checkpoint saved\n"
    finally:
        sys.stderr = before


def test_a_folder_that_cannot_be_written_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file")
    with pytest.raises(RequestError, match="Cannot write the log"):
        set_up_logs(tmp_path, 0)
