"""Dumps and logs of one job, joined: the example that a newcomer tries."""

from __future__ import annotations

from pathlib import Path

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.finding import CERTAIN

EXAMPLE = Path(__file__).parents[2] / "examples" / "diagnose"


def test_a_hang_seen_in_dumps_and_in_logs_is_told_once_with_what_the_culprit_logged_last() -> None:
    (one,) = diagnose([EXAMPLE]).findings
    assert (one.category, one.confidence, one.ranks) == ("uneven_inputs", CERTAIN, (2,))
    assert "exhausted" in one.evidence[-1].text
    assert any("last step that was logged: 4" in seen.text for seen in one.evidence)
    assert "0.4 s before" in one.cause
    assert one.evidence[-1].path.endswith("rank_2.log")


def test_without_the_dumps_the_logs_still_name_the_rank_that_never_came() -> None:
    (one,) = diagnose(sorted(EXAMPLE.glob("*.log"))).findings
    assert one.ranks == (2,) or "Rank 2" in one.cause
    assert one.confidence != CERTAIN
