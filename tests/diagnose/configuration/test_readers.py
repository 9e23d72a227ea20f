"""Commands, argument tables and files of every framework lead to the same arithmetic."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.finding import INFO, Finding


def categories(tmp_path: Path, name: str, text: str) -> list[str]:
    return [one.category for one in findings(tmp_path, name, text) if one.severity != INFO]


def findings(tmp_path: Path, name: str, text: str) -> tuple[Finding, ...]:
    (tmp_path / name).write_text(text)
    return diagnose([tmp_path]).findings


WRONG_HEADS = {
    "train.sh": "#!/bin/bash\nTP=8\ntorchrun --nproc_per_node 8 pretrain_gpt.py \\\n  --tensor-model-parallel-size "
    "${TP} \\\n"
    "  --num-attention-heads 28 \\\n  --num-query-groups 4\n",
    "arguments.log": "------------ arguments ------------\n  num_attention_heads ............................. 28\n"
    "  tensor_model_parallel_size ...................... 8\n",
    "prefixed.log": "[rank0]: num_attention_heads ............ 28\n[rank0]: tensor_model_parallel_size ........ 8\n",
    "titan.toml": "[model]\nn_heads = 28\n[parallelism]\ntensor_parallel_degree = 8\ndata_parallel_shard_degree = -1\n",
    "nanotron.yaml": "model:\n  model_config:\n    num_attention_heads: 28\nparallelism:\n  tp: 8\n  pp: 1\n",
    "printed.log": "cfg = TransformerConfig(num_layers=4, num_attention_heads=28, tensor_model_parallel_size=8)\n",
    "nested.json": json.dumps({"model": {"text_config": {"num_attention_heads": 28}}, "actor": {"tp_size": 8}}),
    "run.log": "+ srun -N 1 -n 8 python train.py --tensor_model_parallel_size=8 --num_attention_heads=28\n",
}


@pytest.mark.parametrize("name", list(WRONG_HEADS))
def test_heads_and_tensor_degree_are_read_however_a_framework_writes_them(tmp_path: Path, name: str) -> None:
    assert categories(tmp_path, name, WRONG_HEADS[name]) == ["divisibility_heads"]


def test_what_the_program_prints_counts_more_than_the_script(tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text("torchrun train.py --tensor-model-parallel-size 8 --num-attention-heads 28\n")
    assert categories(tmp_path, "train.log", "  tensor_model_parallel_size .............. 4\n") == []


def test_of_one_log_the_table_of_arguments_counts_and_not_the_command_above_it(tmp_path: Path) -> None:
    text = (
        "+ torchrun train.py --tensor-model-parallel-size 8 --num-attention-heads 28\n"
        "  tensor_model_parallel_size .............. 4\n+ echo --tensor-model-parallel-size 8\n"
    )
    assert categories(tmp_path, "train.log", text) == []


def test_a_deepspeed_json_and_its_launch_do_not_fill_the_batch(tmp_path: Path) -> None:
    # 8 × 4 × 6 = 192.
    (tmp_path / "run.sh").write_text("deepspeed --num_gpus 6 train.py --deepspeed ds.json\n")
    config = {"train_batch_size": 256, "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 4}
    assert categories(tmp_path, "ds.json", json.dumps(config)) == ["batch_config"]


def test_auto_is_no_number(tmp_path: Path) -> None:
    config = {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": 8, "zero_optimization": {"stage": 2}}
    assert categories(tmp_path, "ds.json", json.dumps(config)) == []


def test_accelerate_s_yaml_tells_processes_and_machines(tmp_path: Path) -> None:
    text = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_machines: 2\nnum_processes: 12\n"
    (tmp_path / "args.log").write_text("launching with tensor_parallel_size=8\n")
    assert categories(tmp_path, "accelerate.yaml", text) == ["world_size_layout"]


@pytest.mark.parametrize(
    ("command", "twice"),
    [
        ("srun -n 8 --ntasks-per-node 8 torchrun --nproc-per-node 8 train.py", True),
        ("srun --nodes=2 --ntasks-per-node=4 \\\n  accelerate launch --num_processes 8 \\\n  train.py", True),
        ("srun -N 2 --ntasks-per-node=1 torchrun --nnodes 2 --nproc-per-node 8 train.py", False),
        ("srun -N 2 -n 16 --ntasks-per-node 8 python train.py", False),
        ("mpirun -np 8 python train.py", False),
    ],
)
def test_a_launcher_in_every_task_is_a_double_launch(tmp_path: Path, command: str, twice: bool) -> None:
    assert categories(tmp_path, "run.sh", command + "\n") == ["port_in_use"] * twice


@pytest.mark.parametrize(("devices", "wrong"), [("0,1", True), ("0,1,2,3", False)])
def test_more_processes_than_visible_devices(tmp_path: Path, devices: str, wrong: bool) -> None:
    text = f"CUDA_VISIBLE_DEVICES={devices} torchrun --nproc_per_node=4 train.py\n"
    assert categories(tmp_path, "run.sh", text) == ["device_mapping"] * wrong


@pytest.mark.parametrize(("port", "wrong"), [("22", True), ("29500", False), ("99999", True)])
def test_a_master_port_that_is_not_a_job_s(tmp_path: Path, port: str, wrong: bool) -> None:
    text = f"export MASTER_PORT={port}\ntorchrun --nproc-per-node 4 train.py\n"
    assert categories(tmp_path, "run.sh", text) == ["port_in_use"] * wrong


def test_layers_that_megatron_drops_when_there_is_one_stage(tmp_path: Path) -> None:
    # Megatron-LM#1778
    text = "--pipeline-model-parallel-size 1 --num-layers 20 --decoder_last_pipeline_num_layers 1\n"
    assert categories(tmp_path, "run.log", text) == ["pipeline_layout"]


def test_words_of_a_sentence_count_experts_and_their_ranks(tmp_path: Path) -> None:
    # vLLM PR#21497
    assert "moe_imbalance" in categories(
        tmp_path, "a.log", "30 experts and an ep_size of 8 ... [3, 3, 3, 3, 3, 3, 3, 9]\n"
    )
