"""Open choices are made from what is here and told; what no run could be is refused before any process starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from meshwright.spec.errors import LayoutError, ModelError, RequestError
from meshwright.train.config.folder import prepare_folder
from meshwright.train.config.here import Here
from meshwright.train.config.job import Job
from meshwright.train.config.read import read_config
from meshwright.train.config.resolve import resolve
from meshwright.train.launch.environment import ALONE, Place

CPU = Here()
EIGHT_H100 = Here(gpus=8, gpu="NVIDIA H100 80GB HBM3")


def started(ranks: int, per_node: int | None = None, launcher: str = "torchrun") -> Place:
    return replace(ALONE, world_size=ranks, local_world_size=per_node or ranks, launcher=launcher)  # type: ignore[arg-type]


def job(here: Here = CPU, **flags: str) -> Job:
    return resolve(read_config(None, {path.replace("__", "."): text for path, text in flags.items()}), here)


def test_without_a_layout_two_cpu_ranks_are_data_parallel_and_that_is_told() -> None:
    found = job()
    assert (found.layout.replicate, found.ranks, found.device, found.backend) == (2, 2, "cpu", "gloo")
    assert any("no layout given: ddp2" in note for note in found.notes)
    assert found.config.layout == str(found.layout)
    assert found.config.run == str(Path("runs") / "tiny-llama")


def test_without_a_layout_all_gpus_are_data_parallel_as_far_as_they_share_the_batch() -> None:
    found = job(EIGHT_H100)
    assert (found.layout.devices, found.device, found.backend) == (8, "cuda", "nccl")
    assert job(replace(EIGHT_H100, gpus=6)).layout.devices == 4  # of 16 sequences, not 6
    assert job(EIGHT_H100, launch__device="cpu").layout.devices == 2


def test_without_a_layout_the_ranks_of_a_launcher_are_data_parallel() -> None:
    found = job(Here(place=started(4)))
    assert found.layout.devices == 4
    assert "torchrun" in found.notes[0]


def test_a_rank_that_says_nothing_reads_at_most_4096_tokens_at_once() -> None:
    assert job().layout.micro_batch == 8  # of 256 tokens each, all that one of two ranks has
    assert job(train__seq_len="1024").layout.micro_batch == 4
    assert job(train__seq_len="8192", model="llama-3-8b").layout.micro_batch == 1


def test_what_is_said_is_taken_as_it_is() -> None:
    found = job(layout="fsdp2 tp2 mbs4", run="here")
    assert str(found.layout) == "fsdp2 tp2 mbs4"
    assert (found.notes, found.config.run, found.checkpoints) == ((), "here", Path("here/checkpoints"))
    assert job(checkpoint__dir="elsewhere").checkpoints == Path("elsewhere")


def test_resolving_twice_changes_nothing() -> None:
    once = job()
    again = resolve(once.config, CPU)
    assert again.config == once.config


def test_the_gpus_name_gives_the_cluster_and_its_peak() -> None:
    found = job(EIGHT_H100, layout="fsdp4", train__precision="bf16")
    assert found.cluster is not None
    assert found.cluster.device.name == "H100"
    assert found.cluster.devices == 4
    assert found.peak_flops == pytest.approx(989e12, rel=0.01)  # NVIDIA's data sheet, dense bf16
    spread = job(replace(EIGHT_H100, place=started(16, 8)), layout="fsdp16")
    assert spread.cluster is not None
    assert (spread.cluster.nodes, spread.cluster.devices_per_node) == (2, 8)


def test_an_unknown_gpu_and_a_cpu_have_no_cluster_and_no_peak() -> None:
    unknown = job(Here(gpus=2, gpu="NVIDIA RTX A6000"), layout="fsdp2")
    assert (unknown.cluster, unknown.peak_flops) == (None, None)
    assert (job().cluster, job().peak_flops) == (None, None)
    # A trial on a laptop for GPUs elsewhere says nothing of the laptop's peak.
    trial = job(layout="fsdp8", cluster="8xH100")
    assert trial.cluster is not None
    assert trial.peak_flops is None


def test_a_named_cluster_is_cut_to_the_ranks() -> None:
    small = job(layout="fsdp2", cluster="2x8xH100").cluster
    assert small is not None
    assert (small.nodes, small.devices_per_node) == (1, 2)
    with pytest.raises(RequestError, match=r"needs 8 devices, 4xH100 has 4\. Legal: fsdp4, "):
        job(layout="fsdp8", cluster="4xH100")


@pytest.mark.parametrize(
    ("here", "flags", "told"),
    [
        (CPU, {"layout": "fsdp2", "launch__ranks": "4"}, "launch.ranks is 4. Legal: --launch.ranks 2"),
        (Here(place=started(4)), {"layout": "fsdp2 tp4"}, "needs 8 ranks, torchrun started 4"),
        (replace(EIGHT_H100, gpus=4), {"layout": "fsdp8"}, "needs 8 GPUs, this machine has 4. Legal: fsdp4"),
        (CPU, {"launch__device": "cuda"}, "sees no GPU here"),
        (CPU, {"launch__backend": "nccl"}, "no collectives for CPUs"),
        (CPU, {"train__eval_every": "5"}, "data.validation_share is 0"),
        (CPU, {"train__lr_scaling": "sqrt"}, "needs train.lr_batch"),
        (CPU, {"train__lr_batch": "8"}, "does nothing"),
        (CPU, {"checkpoint__load": "no/such"}, "checkpoint.load is 'no/such'"),
        (CPU, {"parallel__schedule_csv": "no.csv"}, "parallel.schedule_csv"),
        (CPU, {"parallel__capacity": "1.5"}, "are for experts"),
        (CPU, {"data__source": "no/such/file.txt"}, "no/such/file.txt"),
        (CPU, {"data__tokenizer": "no/such.json"}, "no/such.json"),
        (CPU, {"model": "bert-base", "data__source": "synthetic"}, "does not predict the next token"),
        (CPU, {"metrics__wandb": "true"}, "pip install wandb"),
        (CPU, {"metrics__mlflow": "true"}, "--metrics.no-mlflow"),
        (CPU, {"schedule__name": "wsd", "schedule__warmup_steps": "190"}, "do not fit in 200 steps"),
    ],
)
def test_what_no_run_could_be_is_refused(here: Here, flags: dict[str, str], told: str) -> None:
    with pytest.raises(RequestError) as error:
        job(here, **flags)
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"layout": "tp3"}, "8 attention heads cannot be split over 3"),
        ({"layout": "fsdp4 mbs3"}, "not a multiple of 12"),
        ({"layout": "pp9"}, "8 layers cannot fill 9 stages"),
        ({"layout": "ps2x1"}, "no parameter servers"),
        ({"layout": "fsdp2 quant:weights"}, "ZeRO++"),
        ({"layout": "ddp2 ep2"}, "no experts"),
        ({"layout": "pp2:zbvzerobubble", "train__compile": "true"}, "torch.compile does not allow"),
        ({"model": "gpt2", "train__seq_len": "2048"}, "learned positions for 1024"),
        ({"layout": "cp3"}, "cannot be split over 3 context ranks"),
    ],
)
def test_an_illegal_layout_is_refused_with_legal_ones(flags: dict[str, str], told: str) -> None:
    with pytest.raises(LayoutError) as error:
        job(**flags)
    assert told in str(error.value)
    assert error.value.legal


def test_experts_may_be_spread_over_replicas() -> None:
    assert job(model="tiny-mixtral", layout="ddp4 ep2").layout.expert == 2


def test_a_misspelt_small_model_is_recognised() -> None:
    with pytest.raises(ModelError, match="Legal: tiny-llama"):
        job(model="tiny-lama")


def test_a_folder_of_another_model_is_not_resumed(tmp_path: Path) -> None:
    first = job(run=str(tmp_path / "run"))
    prepare_folder(first)
    assert read_config(tmp_path / "run" / "config.toml") == first.config
    other = job(run=str(tmp_path / "run"), model="tiny-gpt2")
    prepare_folder(other)  # there is nothing to resume from yet
    (tmp_path / "run" / "checkpoints" / "step-1").mkdir(parents=True)
    prepare_folder(other)
    with pytest.raises(RequestError, match="holds a run of tiny-gpt2, not of tiny-llama"):
        prepare_folder(first)
    prepare_folder(job(run=str(tmp_path / "run"), checkpoint__resume="false"))
