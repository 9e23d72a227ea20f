"""What a configuration cannot satisfy, with the values that it could: each number here is worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.finding import CERTAIN, ERROR, INFO, LIKELY, Finding


def told(tmp_path: Path, config: dict[str, Any]) -> tuple[Finding, ...]:
    """What is said of a plain object."""
    (tmp_path / "job.json").write_text(json.dumps(config))
    return diagnose([tmp_path]).findings


@pytest.mark.parametrize(
    ("config", "category", "legal"),
    [
        ({"num_attention_heads": 28, "num_key_value_heads": 4, "tp": 8}, "divisibility_heads", "1, 2, 4:"),
        ({"num_attention_heads": 52, "tensor_parallel_size": 8}, "divisibility_heads", "1, 2, 4, 13, 26, 52"),
        ({"num_attention_heads": 32, "num_query_groups": 5}, "divisibility_gqa", "1, 2, 4, 8, 16, 32"),
        ({"num_attention_heads": 48, "num_key_value_heads": 6, "tp_size": 4}, "divisibility_gqa", "1, 2, 3, 6"),
        ({"num_experts": 30, "ep_size": 8}, "moe_imbalance", "1, 2, 3, 5, 6, 10, 15, 30"),
        ({"gpus": 7, "train_batch_size": 256, "micro_batch": 2}, "batch_config", "252, 266"),
        ({"world_size": 12, "layout": "TP=8"}, "world_size_layout", "8, 16"),
        ({"seq_length": 4098, "context_parallel_size": 2}, "divisibility_sequence", "4096, 4100"),
        ({"num_attention_heads": 40, "num_key_value_heads": 8, "ulysses_sp_size": 16}, "divisibility_sequence",
         "1, 2, 4, 8, 40"),
        ({"nproc_per_node": 4, "gpus": 1}, "device_mapping", "nproc-per-node 1"),
    ],
)  # fmt: skip
def test_a_configuration_that_cannot_hold_is_named_with_the_legal_values(
    tmp_path: Path, config: dict[str, Any], category: str, legal: str
) -> None:
    first = told(tmp_path, config)[0]
    assert (first.category, first.confidence) == (category, CERTAIN)
    assert legal in " ".join(first.change)


def test_a_batch_that_no_number_of_ranks_makes_is_refused_without_one(tmp_path: Path) -> None:
    # 256 / (3 · 10) is no whole number; 240 and 270 are the nearest that are.
    config = {
        "train_batch_size": 256,
        "train_micro_batch_size_per_gpu": 3,
        "gradient_accumulation_steps": 10,
    }
    first = told(tmp_path, config)[0]
    assert (first.category, first.confidence) == ("batch_config", CERTAIN)
    assert "270, 240" in first.change[0] or "240, 270" in first.change[0]
    assert {one.severity for one in told(tmp_path, config | {"train_batch_size": 240})} <= {INFO}


def test_layers_that_do_not_fill_stages_are_no_more_than_likely_as_some_frameworks_take_them(tmp_path: Path) -> None:
    first = told(tmp_path, {"num_layers": 46, "layout": "TP8 PP4"})[0]
    assert (first.category, first.confidence) == ("pipeline_layout", LIKELY)
    assert "2, 23, 46" in " ".join(first.change)


def test_key_value_heads_alone_are_told_alone_and_the_verdict_is_not_certain(tmp_path: Path) -> None:
    # Whether the query heads fit is not known.
    first = told(tmp_path, {"num_key_value_heads": 7, "ulysses_sp_size": 2})[0]
    assert (first.category, first.confidence) == ("divisibility_sequence", LIKELY)
    assert "out 7 key/value heads" in first.cause


@pytest.mark.parametrize(
    "config",
    [
        {"num_attention_heads": 32, "num_key_value_heads": 8, "tp": 8, "num_layers": 32, "pp": 4, "world_size": 64},
        {"num_attention_heads": 40, "num_key_value_heads": 8, "ulysses_sp_size": 40},
        {"gpus": 8, "train_batch_size": 256, "micro_batch": 2, "gradient_accumulation_steps": 16},
        {"num_experts": 64, "ep": 8, "seq_length": 4096, "cp": 2, "tp": 2, "sequence_parallel": True},
        {"num_layers": 46, "pp": 4, "decoder_first_pipeline_num_layers": 11, "decoder_last_pipeline_num_layers": 11},
    ],
)  # fmt: skip
def test_a_configuration_that_holds_yields_nothing_above_info(tmp_path: Path, config: dict[str, Any]) -> None:
    assert {one.severity for one in told(tmp_path, config)} <= {INFO}


def test_a_model_that_is_only_named_has_the_catalogue_s_heads_and_the_verdict_is_not_certain(tmp_path: Path) -> None:
    # Qwen2.5-7B's config.json: 28 attention heads, 4 key/value heads.
    first = told(tmp_path, {"model": "Qwen/Qwen2.5-7B", "layout": "TP=8"})[0]
    assert (first.category, first.confidence) == ("divisibility_heads", LIKELY)
    assert "1, 2, 4:" in first.change[0]


def test_first_and_last_stages_must_leave_whole_stages_between(tmp_path: Path) -> None:
    # 46 - 10 - 11 = 25 layers for two stages.
    config = {
        "num_layers": 46,
        "pp": 4,
        "decoder_first_pipeline_num_layers": 10,
        "decoder_last_pipeline_num_layers": 11,
    }
    first = told(tmp_path, config)[0]
    assert (first.category, first.confidence) == ("pipeline_layout", CERTAIN)
    assert "25 of 46" in first.cause


def test_tensor_parallelism_beyond_a_node_is_possible_and_within_it_is_fine(tmp_path: Path) -> None:
    beyond = told(tmp_path, {"nnodes": 2, "gpus_per_node": 4, "tp": 8})
    assert [(one.category, one.confidence) for one in beyond] == [("tp_comm_bound", "possible")]
    assert not told(tmp_path, {"nnodes": 2, "gpus_per_node": 8, "tp": 8})


@pytest.mark.parametrize("stage", [2, 3])
def test_zero_3_over_nodes_is_told_and_is_no_fault(tmp_path: Path, stage: int) -> None:
    found = told(tmp_path, {"zero_optimization": {"stage": stage}, "nnodes": 4, "gpus_per_node": 8})
    assert [(one.category, one.severity) for one in found] == [("zero3_internode", INFO)] * (stage == 3)


def test_a_job_that_made_steps_with_a_configuration_was_not_stopped_by_it(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("step: 1  loss: 5.1234\nstep: 2  loss: 5.0123\n")
    assert {one.severity for one in told(tmp_path, {"num_attention_heads": 28, "tp": 8})} == {INFO}


def test_two_jobs_in_two_folders_are_not_mixed(tmp_path: Path) -> None:
    for name, heads, tp in (("a", 28, 4), ("b", 64, 8)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "c.json").write_text(json.dumps({"num_attention_heads": heads, "tp": tp}))
    assert diagnose([tmp_path]).findings == ()


@pytest.mark.parametrize(
    "value", [10**400, -8, 0, 1e308, float("nan"), float("inf"), "8" * 5000, [8], {"a": 8}, None, True, "٣", "1e999"]
)
def test_a_hostile_value_is_not_read(tmp_path: Path, value: Any) -> None:
    config = {"num_attention_heads": 32, "num_layers": 32, "tp": value, "pp": value, "seq": value, "world_size": value}
    (tmp_path / "job.json").write_text(json.dumps(config))
    assert {one.severity for one in diagnose([tmp_path]).findings} <= {INFO}


def test_bucket_size_true_is_a_bucket_of_one_element(tmp_path: Path) -> None:
    (tmp_path / "run.py.log").write_text("config = DistributedDataParallelConfig(overlap=True, bucket_size=True)\n")
    first = diagnose([tmp_path]).findings[0]
    assert (first.category, first.severity, first.confidence) == ("small_messages", ERROR, CERTAIN)
