"""Assertions of real frameworks that carry numbers: what they refuse, and what they would take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.finding import CERTAIN, ERROR, POSSIBLE
from meshwright.diagnose.signatures.topic import SIGNATURES
from meshwright.diagnose.topics import TOPICS


@pytest.mark.parametrize(
    ("text", "category", "legal"),
    [
        # vLLM, THU-KEG/AdaptThink#1
        ("ValueError: Total number of attention heads (28) must be divisible by tensor parallel size (8)",
         "divisibility_heads", "1, 2, 4, 7, 14, 28"),
        # DeepSpeed#3634
        ("AssertionError: num_heads (52) must be divisible by mp_size "
            "(8)", "divisibility_heads", "1, 2, 4, 13, 26, 52"),
        # megatron-core transformer_config.py
        ("[rank3]: ValueError: num_query_groups (6) must be a multiple of tensor_model_parallel_size (4).",
         "divisibility_gqa", "1, 2, 3, 6"),
        ("AssertionError: num_attention_heads (32) must be divisible by num_query_groups (5)", "divisibility_gqa",
         "1, 2, 4, 8, 16, 32"),
        # Megatron-LM arguments.py
        ("RuntimeError: world_size (6) is not divisible by tensor_model_parallel_size (2) x "
         "pipeline_model_parallel_size (2) x context_parallel_size (1)", "world_size_layout", "4, 8"),
        ("AssertionError: global batch size (100) is not divisible by micro batch size (8) times data parallel size "
            "(4)",
         "batch_config", "96, 128"),
        # TRL grpo_trainer.py
        ("ValueError: The global train batch size (4 x 3) must be evenly divisible by the number of generations per "
         "prompt (8). Given the current train batch size, the valid values for the number of generations are: [2, 3].",
         "batch_config", "8, 16"),
        ("num_layers=46 should be divisible by pipeline_model_parallel_size=4", "pipeline_layout", "1, 2, 23, 46"),
        # torchtitan PR#27
        ("AssertionError: Invalid parallel dims: dp(1) * sp(2) * pp(3) != WORLD_SIZE8", "world_size_layout", "product"),
        # accelerate, NVIDIA/Model-Optimizer PR#1302
        ("ValueError: total_size (4) does not match num_processes (8)", "world_size_layout", "2 times"),
        # OpenRLHF#346
        ("AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * "
         "gradient_acc_step * world_size 256 != 2 * 18 * 7", "batch_config", "252, 266"),
        # DeepSpeed#2898
        ("ZeRORuntimeException: The checkpoint being loaded used a DP world size of 4 but the current world size is 6. "
         "Automatic adjustment is not supported.", "checkpoint_reshard", "4 data-parallel"),
        ("AssertionError: tensor_model_parallel_size value from checkpoint (2) is not equal to the input argument "
            "value "
         "(4).", "checkpoint_reshard", "tensor_model_parallel_size 2"),
    ],
)  # fmt: skip
def test_a_refusal_with_numbers_names_what_would_be_taken(tmp_path: Path, text: str, category: str, legal: str) -> None:
    (tmp_path / "train.log").write_text(f"starting\n{text}\n")
    first = diagnose([tmp_path]).findings[0]
    assert (first.category, first.severity, first.confidence) == (category, ERROR, CERTAIN)
    assert legal in " ".join(first.change)
    assert first.evidence[0].line == 2


def test_a_refusal_and_the_configuration_behind_it_are_one_finding(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("ValueError: attention heads (28) must be divisible by tensor parallel size (8)\n")
    (tmp_path / "config.json").write_text('{"num_attention_heads": 28, "num_key_value_heads": 4, "tp": 8}')
    found = [one for one in diagnose([tmp_path]).findings if one.category == "divisibility_heads"]
    assert len(found) == 1
    assert "1, 2, 4:" in found[0].change[0]


def test_a_number_without_a_name_is_only_possible(tmp_path: Path) -> None:
    # vllm#8097: 25 heads of InternVL over 4 ranks; the text does not say of what.
    (tmp_path / "a.log").write_text("AssertionError: 25 is not divisible by 4\n")
    assert [(one.category, one.confidence) for one in diagnose([tmp_path]).findings] == [
        ("divisibility_heads", POSSIBLE)
    ]


@pytest.mark.parametrize("beside", [False, True])
def test_the_batch_assertion_comes_first_with_the_nearest_legal_values(tmp_path: Path, beside: bool) -> None:
    # By hand: 4 x 8 x 6 = 192; multiples of 24 about 256 are 264 and 240; 256 = 4 x 8 x 8 = 4 x 16 x 4.
    text = (
        "Traceback (most recent call last):\n"
        '  File "/opt/conda/lib/python3.10/site-packages/deepspeed/runtime/config.py", line 1029, in _batch_assertion\n'
        "AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * "
        "gradient_acc_step * world_size 256 != 4 * 8 * 6\n"
    )
    (tmp_path / "train.log").write_text(text)
    if beside:
        config = {"train_batch_size": 256, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8}
        (tmp_path / "ds_config.json").write_text(json.dumps(config))
    first = diagnose([tmp_path]).findings[0]
    assert first.category == "batch_config"
    assert "256 is not 4 × 8 × 6 = 192" in first.cause
    assert "264, 240 (a multiple of 4 × 6 = 24), or 192 with the accumulation of 8" in first.change[0]
    assert "8 (accumulation 8) or 4 (accumulation 16) or 2" in first.change[1]


@pytest.mark.parametrize(("launched", "confidence"), [(8, CERTAIN), (0, "likely")])
def test_a_batch_that_holds_with_the_world_that_was_launched_means_that_the_world_was_seen_wrongly(
    tmp_path: Path, launched: int, confidence: str
) -> None:
    # 64 = 2 × 4 × 8, and the framework saw one rank.
    command = "torchrun --nproc-per-node 8 train.py\n" if launched else ""
    text = "AssertionError: Check batch related parameters. train_batch_size is not equal to … 64 != 2 * 4 * 1"
    (tmp_path / "train.log").write_text(f"{command}{text}\n")
    first = diagnose([tmp_path]).findings[0]
    assert (first.category, first.confidence) == ("batch_config", confidence)
    assert "sees a data-parallel world of 1" in first.cause


@pytest.mark.parametrize(("gpus", "confidence"), [(8, "likely"), (None, POSSIBLE)])
def test_two_shards_of_a_vocabulary_name_the_two_vocabularies(
    tmp_path: Path, gpus: int | None, confidence: str
) -> None:
    # X-Square-Robot/wall-x#114: ceil(151665 / 8) = 18959 rows of Qwen2.5's tokenizer against 19471.
    text = "RuntimeError: The size of tensor a (18959) must match the size of tensor b (19471) at dimension 0"
    (tmp_path / "train.log").write_text(text + "\n")
    if gpus:
        (tmp_path / "job.json").write_text('{"gpus": 8, "layout": "FSDP2 bf16"}')
    first = diagnose([tmp_path]).findings[0]
    assert (first.category, first.confidence) == ("checkpoint_reshard", confidence)
    assert not gpus or "4096" in first.cause  # 512 rows × 8


def test_a_mismatch_of_small_dimensions_is_no_checkpoint(tmp_path: Path) -> None:
    text = "RuntimeError: The size of tensor a (17) must match the size of tensor b (16) at non-singleton dimension 1"
    (tmp_path / "train.log").write_text(f"ERROR {text}\n")
    rules = [one for one in TOPICS if not one.last_resort]
    assert "checkpoint_reshard" not in {one.category for one in diagnose([tmp_path], rules).findings}


@pytest.mark.parametrize(
    "text",
    [
        "heads (99999999999999999999999999) must be divisible by tensor parallel size (8)",
        "heads (8) must be divisible by tensor parallel size (0)",
        "batch 1 != 0 * 0 * "
        "0", "must be divisible by", "divisible by " * 2000, "a" * 5000 + " (3) must be divisible by (2",
        "WARNING 8 is divisible by 4", "heads (32) must be divisible by tensor parallel size (8)",
    ],
)  # fmt: skip
def test_what_refuses_nothing_that_can_be_read_yields_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "train.log").write_text(f"2026-01-01 00:00:00 ERROR {text}\n")
    # What the same words without their numbers may mean is for the messages.
    with_numbers = [one for one in TOPICS if one is not SIGNATURES and not one.last_resort]
    assert diagnose([tmp_path], with_numbers).findings == ()
