"""What a forward keeps, and the peak: the formulas and the program, for every family that the program computes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshwright.catalog.model_files import model_file
from meshwright.rehearse.compare import Line, compare_rank
from meshwright.rehearse.job import make_job
from meshwright.rehearse.session import rehearse_ranks

FAMILIES = {
    "gpt2": "gpt2", "megatron": "megatron-1.7b", "llama": "llama-3.1-8b", "mistral": "mistral-7b",
    "qwen2": "qwen2.5-7b", "qwen3": "qwen3-8b", "mixtral": "mixtral-8x7b", "qwen2_moe": "qwen1.5-moe-a2.7b",
    "qwen3_moe": "qwen3-30b-a3b", "deepseek_v2": "deepseek-v2-lite", "deepseek_v3": "moonlight-16b-a3b",
}  # fmt: skip
"""A preset of each family, with its own widths; of its layers, two."""
ROUTING = 0.006
"""A Model does not say how a mixture's weights are scaled, nor whether a loss balances it: some bytes a token."""


def two_layers(family: str, folder: Path) -> str:
    config = json.loads(model_file(FAMILIES[family]).read_text(encoding="utf-8"))
    key = next(key for key in ("num_hidden_layers", "n_layer", "num_layers") if key in config)
    path = folder / f"{family}.json"
    path.write_text(json.dumps(config | {key: 2}), encoding="utf-8")
    return str(path)


def lines(
    model: str, layout: str, cluster: str = "8xH100", rank: int = 0, batch: int = 8, **more: str
) -> dict[str, Line]:
    job = make_job(model, cluster, layout, seq_len=more.pop("seq_len", 256), global_batch=batch, **more)
    (found,) = rehearse_ranks(job, [rank])
    return {line.name: line for line in compare_rank(job, found) if line.unit == "bytes"}


def check_family(family: str, tensor: str, recompute: str, folder: Path) -> None:
    found = lines(two_layers(family, folder), f"fsdp2 {tensor} ac:{recompute}")
    assert abs(found["activations of a micro-batch"].difference) < ROUTING
    assert abs(found["peak memory"].difference) < 0.05


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_keeps_what_the_formula_says(family: str, tmp_path: Path) -> None:
    check_family(family, "tp2", "none", tmp_path)


@pytest.mark.parametrize("tensor", ["tp2", "tp2:nosp"])
@pytest.mark.parametrize("recompute", ["selective", "full"])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_recomputation_and_sequence_parallelism_spare_what_the_formula_says(
    family: str, recompute: str, tensor: str, tmp_path: Path
) -> None:
    check_family(family, tensor, recompute, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("tensor", ["tp2", "tp2:nosp"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_keeps_what_the_formula_says_in_every_way(
    family: str, tensor: str, recompute: str, tmp_path: Path
) -> None:
    check_family(family, tensor, recompute, tmp_path)


@pytest.mark.parametrize(
    ("layout", "more"),
    [
        ("ddp4", {}),
        ("ddp4", {"precision": "fp32"}),
        ("ddp2 cp2:ulysses", {}),
        ("fsdp2 cp4:allgather mbs2", {}),
        ("zero1:8", {"batch": 24}),
        ("zero2:2 tp4", {"cluster": "8xcpu"}),
        ("hsdp2x2 cp2:ring ac:full", {"precision": "fp16"}),
        ("ddp4", {"cluster": "8xcpu", "precision": "fp32"}),
    ],
)
def test_memory_is_what_the_formulas_say_under_every_mode(layout: str, more: dict[str, str]) -> None:
    found = lines("tiny-qwen3", layout, **more)
    assert abs(found["activations of a micro-batch"].difference) < 1e-4
    assert abs(found["peak memory"].difference) < 0.05


@pytest.mark.parametrize(
    ("schedule", "rest", "rank"),
    [
        ("gpipe", "fsdp2", 2),
        ("1f1b", "ddp2", 0),
        ("interleaved1f1b", "fsdp2", 2),
        ("loopedbfs", "ddp2", 0),
        ("interleavedzerobubble", "fsdp2", 2),
        ("zbvzerobubble", "ddp2", 0),
        ("dualpipev", "fsdp2", 2),
    ],
)
def test_the_peak_of_a_pipeline_rank_is_what_the_formulas_say(schedule: str, rest: str, rank: int) -> None:
    found = lines("tiny-llama", f"{rest} pp2:{schedule}", rank=rank, batch=32, seq_len=1024)
    assert abs(found["activations of a micro-batch"].difference) < 2e-4
    assert abs(found["peak memory"].difference) < 0.05


def test_experts_in_fp16_are_multiplied_one_by_one_and_the_formulas_know() -> None:
    found = lines("tiny-mixtral", "fsdp8", batch=16, precision="fp16")
    assert abs(found["activations of a micro-batch"].difference) < ROUTING


def test_of_optimizers_that_need_memory_in_their_step_the_states_are_judged_and_the_peak_is_not() -> None:
    found = lines("tiny-llama", "fsdp8", optimizer="lamb")
    assert found["optimizer"].difference == 0.0
    assert found["peak memory"].tolerance is None


def test_the_first_steps_peak_is_not_judged_by_that_of_the_others() -> None:
    job = make_job("tiny-llama", "8xH100", "zero2:8", seq_len=64, global_batch=8)
    (found,) = rehearse_ranks(job, [0], steps=1)
    (peak,) = (line for line in compare_rank(job, found) if line.name == "peak memory")
    assert peak.tolerance is None
