"""The options that describe a job become the nouns that are priced."""

from __future__ import annotations

import inspect
from dataclasses import fields

import pytest

from meshwright.cli.job import DEFAULT_CLUSTER, DEFAULT_MODEL, JobOptions, read_job, takes_job
from meshwright.spec.errors import RequestError


def test_a_verb_that_takes_a_job_has_one_parameter_an_option() -> None:
    @takes_job
    def answer(options: JobOptions, top: int = 5) -> int:
        return top if options.model == "gpt2" else 0

    names = list(inspect.signature(answer).parameters)
    assert names == [*(field.name for field in fields(JobOptions)), "top"]
    values = {field.name: None for field in fields(JobOptions)}
    assert answer(**values | {"model": "gpt2"}, top=3) == 3


def test_nothing_said_is_llama_2_7b_on_eight_a100_and_every_choice_is_told() -> None:
    job = read_job(JobOptions())
    assert (job.model.name, job.cluster.name) == (DEFAULT_MODEL, DEFAULT_CLUSTER) == ("llama-2-7b", "8xA100-40GB")
    told = " ".join(job.notes)
    for chosen in (DEFAULT_MODEL, DEFAULT_CLUSTER, f"{job.workload.seq_len:,}", f"{job.workload.global_batch:,}"):
        assert chosen in told


def test_what_was_said_is_taken_and_not_told_again() -> None:
    options = JobOptions(
        model="gpt2",
        cluster="2x8xH100",
        seq_len=1024,
        global_batch=96,
        precision="fp16",
        optimizer="sgd",
        states="pure",
        implementation="compiled",
        no_fused_attention=True,
        inter_node="100Gbps",
    )
    job = read_job(options)
    w = job.workload
    assert (w.seq_len, w.global_batch, w.precision, w.optimizer, w.states) == (1024, 96, "fp16", "sgd", "pure")
    assert (w.implementation, w.fused_attention, job.cluster.nodes) == ("compiled", False, 2)
    assert job.cluster.inter.bytes_per_s == 12.5e9
    assert job.notes == ()


def test_bert_is_not_causal_and_llama_is() -> None:
    assert not read_job(JobOptions(model="bert-base")).workload.causal
    assert read_job(JobOptions(model="llama-3-8b")).workload.causal


def test_lora_and_frozen_layers_are_tunings_that_exclude_each_other() -> None:
    assert read_job(JobOptions(lora_rank=8)).workload.tuning.lora_rank == 8
    assert read_job(JobOptions(frozen_layers=4)).workload.tuning.frozen_layers == 4
    with pytest.raises(RequestError, match="LoRA"):
        read_job(JobOptions(lora_rank=8, frozen_layers=4))
