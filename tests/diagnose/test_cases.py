"""Public reports whose causes are known: symptoms as their authors gave them, and the category that they lead to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.finding import INFO, POSSIBLE, Finding
from meshwright.spec.errors import RequestError

CASES = Path(__file__).parents[3] / "shared" / "data" / "diagnosis" / "cases.jsonl"


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Mapping[str, Any], Sequence[Finding]]]:
    """Each case with what is found in its symptoms and, beside them, its configuration."""
    if not CASES.exists():
        pytest.skip("the cases are not beside this checkout")
    found = []
    for line in CASES.read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        folder = tmp_path_factory.mktemp("case")
        (folder / "symptom.log").write_text("\n".join(case["symptom_text"]) + "\n", encoding="utf-8")
        (folder / "config.json").write_text(json.dumps(case["config"]), encoding="utf-8")
        try:
            found.append((case, diagnose([folder]).findings))
        except RequestError:
            found.append((case, ()))
    return found


def share_within(answers: list[tuple[Mapping[str, Any], Sequence[Finding]]], places: int) -> float:
    """Of the cases whose cause is sure, the share whose category is among the first so many."""
    sure = [(case, list(dict.fromkeys(one.category for one in found))) for case, found in answers
            if case["confidence"] == "high"]  # fmt: skip
    return sum(case["category"] in categories[:places] for case, categories in sure) / len(sure)


def test_nine_of_ten_reports_lead_to_their_category_first(
    answers: list[tuple[Mapping[str, Any], Sequence[Finding]]],
) -> None:
    assert share_within(answers, 1) >= 0.90


def test_97_of_100_reports_have_their_category_among_the_first_three(
    answers: list[tuple[Mapping[str, Any], Sequence[Finding]]],
) -> None:
    assert share_within(answers, 3) >= 0.97


def test_of_a_report_whose_cause_stayed_unknown_nothing_is_more_than_possible(
    answers: list[tuple[Mapping[str, Any], Sequence[Finding]]],
) -> None:
    unsure = [found for case, found in answers if case["confidence"] == "low"]
    assert len(unsure) == 20
    assert {one.confidence for found in unsure for one in found if one.severity != INFO} == {POSSIBLE}
