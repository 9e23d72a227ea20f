"""Public reports whose cause is arithmetic: the right category comes first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.finding import POSSIBLE, Finding

CASES = Path(__file__).parents[4] / "shared" / "data" / "diagnosis" / "cases.jsonl"
BY_NUMBERS = {
    "ds-batch-assert-openrlhf346", "tp-heads-28-8-adaptthink1", "tp-heads-52-8-ds3634", "gqa-cryptic-shape-mlm5755",
    "gqa-kv-lt-tp-reshard-modelexpress650", "vocab-resize-resume-wallx114", "zero-dp-world-ds2898",
    "straggler-gc-marin9224", "pp1-lastlayers-flops-mlm1778", "dup-gpu-more-ranks-than-gpus-viewdiff24",
    "moe-uneven-experts-vllm21497", "cpu-bound-launch-lerobot4612", "bucket-size-true-recsys374",
    "layers-not-div-pp-swift5737", "fp16-scale-collapse-midrun-cla534", "low-mfu-small-steps-nemorl1844",
}  # fmt: skip


def cases() -> dict[str, dict[str, Any]]:
    if not CASES.is_file():
        return {}
    return {case["id"]: case for case in map(json.loads, CASES.read_text().splitlines())}


def told(tmp_path: Path, case: dict[str, Any]) -> tuple[Finding, ...]:
    (tmp_path / "train.log").write_text("INFO start\n" + "\n".join(case["symptom_text"]) + "\n")
    (tmp_path / "job.json").write_text(json.dumps(case["config"]))
    return diagnose([tmp_path]).findings


@pytest.mark.parametrize("name", sorted(BY_NUMBERS))
def test_the_category_of_a_report_comes_first(tmp_path: Path, name: str) -> None:
    case = cases().get(name)
    if case is None:
        pytest.skip("the reports are not beside this checkout")
    assert told(tmp_path, case)[0].category == case["category"]


def test_of_reports_whose_cause_is_doubtful_arithmetic_says_nothing_above_possible(tmp_path: Path) -> None:
    doubtful = [case for case in cases().values() if case["confidence"] == "low"]
    if not doubtful:
        pytest.skip("the reports are not beside this checkout")
    for number, case in enumerate(doubtful):
        (tmp_path / str(number)).mkdir()
        from_numbers = {
            "fp16_overflow",
            "port_in_use",
            "low_mfu_small_work",
            "pipeline_layout",
            "divisibility_sequence",
        }
        found = told(tmp_path / str(number), case)
        assert {one.confidence for one in found if one.weight and one.category in from_numbers} <= {POSSIBLE}, case[
            "id"
        ]
