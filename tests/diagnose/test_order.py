"""Which finding comes first."""

from __future__ import annotations

from pathlib import Path

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.finding import CERTAIN, ERROR, INFO, LIKELY, POSSIBLE, WARNING, Evidence, Finding
from meshwright.diagnose.order import MOST_EVIDENCE, in_order


def finding(cause: str, severity: str = ERROR, confidence: str = LIKELY, **more: object) -> Finding:
    return Finding("network_error", severity, confidence, (), cause, **more)  # type: ignore[arg-type]


def test_a_cause_comes_before_its_consequence_however_sure_that_is() -> None:
    found = in_order([finding("timeout", confidence=CERTAIN, consequence=True), finding("cause", confidence=POSSIBLE)])
    assert [one.cause for one in found] == ["cause", "timeout"]


def test_of_two_causes_that_are_equally_sure_the_earlier_comes_first() -> None:
    found = in_order([finding("later", when=20.0), finding("no time"), finding("earlier", when=10.0)])
    assert [one.cause for one in found] == ["earlier", "later", "no time"]


def test_information_comes_last_and_warnings_after_errors() -> None:
    found = in_order([finding("told", INFO), finding("odd", WARNING), finding("wrong")])
    assert [one.cause for one in found] == ["wrong", "odd", "told"]


def test_the_same_cause_on_many_ranks_is_one_finding_with_the_first_evidence() -> None:
    lines = [
        Finding("network_error", ERROR, LIKELY, (rank,), "c", (Evidence(f"{rank}.log", "x"),), when=9.0 - rank)
        for rank in range(9)
    ]
    (one,) = in_order(lines)
    assert one.ranks == tuple(range(9))
    assert len(one.evidence) == MOST_EVIDENCE
    assert one.when == 1.0


def test_over_all_ranks_the_earliest_cause_wins_over_the_watchdogs_of_the_others(tmp_path: Path) -> None:
    (tmp_path / "rank_0.log").write_text(
        "[rank0]:[E1103 10:00:00.000000000 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=9, NumelOut=9, Timeout(ms)=600000) ran for 600010 "
        "milliseconds before timing out.\n"
    )
    (tmp_path / "rank_1.log").write_text(
        "2025-11-03 09:50:00,100 INFO step 7\n"
        "2025-11-03 09:50:01,100 ERROR CUDA error: uncorrectable ECC error encountered\n"
    )
    first = diagnose([tmp_path]).findings[0]
    assert (first.category, first.ranks) == ("hardware_fault", (1,))
    assert first.evidence[0].line == 2
