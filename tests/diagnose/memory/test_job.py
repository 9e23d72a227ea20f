"""A model's state, told by any of the ways in which jobs are configured, against the device's capacity."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.finding import LIKELY, Finding

LLAMA_7B = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 32, "num_hidden_layers": 32, "intermediate_size": 11008, "vocab_size": 32000,
}  # fmt: skip
LINE = (
    "[rank{r}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 172.00 MiB. GPU {r} has a total capacity "
    "of 79.15 GiB of which 60.00 MiB is free. Including non-PyTorch memory, this process has 79.04 GiB memory in use. "
    "Of the allocated memory 78.21 GiB is allocated by PyTorch, and 200.90 MiB is reserved by PyTorch but "
    "unallocated.\n"
)
MEGATRON = """\
 world_size ...................................... 8
 tensor_model_parallel_size ...................... 1
 pipeline_model_parallel_size .................... 1
 num_layers ...................................... 32
 hidden_size ..................................... 4096
 num_attention_heads ............................. 32
 ffn_hidden_size ................................. 11008
 swiglu .......................................... True
 untie_embeddings_and_output_weights ............. True
 padded_vocab_size ............................... 32000
 micro_batch_size ................................ 1
 seq_length ...................................... 4096
 use_distributed_optimizer ....................... {}
"""


def told(folder: Path, files: Mapping[str, str], before: str = "") -> Finding:
    (folder / "a.log").write_text(before + "".join(LINE.format(r=rank) for rank in range(8)))
    for name, text in files.items():
        (folder / name).write_text(text)
    return diagnose([folder]).findings[0]


def deepspeed(stage: int) -> dict[str, str]:
    config = {"zero_optimization": {"stage": stage}, "train_micro_batch_size_per_gpu": 1}
    return {
        "config.json": json.dumps(LLAMA_7B), "ds_config.json": json.dumps(config),
        "run.sh": "deepspeed --num_gpus 8 train.py --deepspeed ds_config.json\n",
    }  # fmt: skip


def test_deepspeed_without_sharding_keeps_sixteen_bytes_of_each_parameter(tmp_path: Path) -> None:
    # 6.738e9 parameters (Llama 2 7B's card) x 16 bytes = 100.4 GiB, on 79.15 GiB.
    found = told(tmp_path, deepspeed(0))
    assert (found.category, found.confidence) == ("oom_capacity", LIKELY)
    assert "6.74 billion parameters x 16 bytes = 100.41 GiB" in found.cause
    assert found.change[0].startswith("Shard parameters, gradients and optimizer states")
    assert "the estimate's peak falls from" in found.change[0]
    assert not any("Halve" in one for one in found.change)


@pytest.mark.parametrize("stage", [2, 3])
def test_a_state_that_is_sharded_fits(tmp_path: Path, stage: int) -> None:
    # ZeRO-2: 2 bytes whole and 14 / 8 sharded: 6.74e9 x 3.75 = 23.5 GiB.
    assert "state alone" not in told(tmp_path, deepspeed(stage)).cause


def test_megatron_arguments_tell_model_and_layout(tmp_path: Path) -> None:
    found = told(tmp_path, {}, MEGATRON.format("False"))
    assert "6.74 billion parameters x 16 bytes = 100.41 GiB" in found.cause
    assert any("the estimate's peak falls from" in one for one in found.change)


def test_megatrons_distributed_optimizer_shards_moments_and_master_weights(tmp_path: Path) -> None:
    # 4 bytes whole and 12 / 8: 6.74e9 x 5.5 = 34.5 GiB.
    assert "state alone" not in told(tmp_path, {}, MEGATRON.format("True")).cause


def test_a_model_that_a_launch_line_names_is_the_catalogues(tmp_path: Path) -> None:
    launch = "torchrun --nproc_per_node 2 train.py --fsdp full_shard --model_name_or_path meta-llama/Llama-2-7b-hf\n"
    # 6.74e9 x 16 / 2 = 50.2 GiB is below 70 %; of Llama 2 13B (13.02e9) it is 97 GiB.
    assert "state alone" not in told(tmp_path, {"run.sh": launch}).cause
    assert "13.02 billion parameters x (0 + 16 / 2) bytes" in told(
        tmp_path, {"run.sh": launch.replace("-7b", "-13b")}
    ).cause  # fmt: skip


def test_another_jobs_configuration_in_another_folder_is_not_this_ones(tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    mine.mkdir()
    other.mkdir()
    for name, text in deepspeed(0).items():
        (other / name).write_text(text)
    told(mine, deepspeed(3))
    assert not any("state alone" in one.cause for one in diagnose([tmp_path]).findings)
