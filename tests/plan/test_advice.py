"""The rules of thumb lead where the field's decision tree leads, and say whether the search agrees."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright.plan.advice import advice, near_batches
from meshwright.plan.question import Question
from meshwright.plan.rule_of_thumb import rule_of_thumb
from meshwright.plan.search import make_plan
from meshwright.plan.warnings import one_device_bytes
from meshwright.spec.cluster_text import parse_cluster
from meshwright.spec.layout import Layout
from meshwright.spec.model_config import load_model
from meshwright.spec.rules import violations
from meshwright.spec.workload import Workload


def question(model: str, cluster: str, seq_len: int, batch: int) -> Question:
    nodes = parse_cluster(cluster)
    return Question(load_model(model), nodes, Workload(seq_len, batch), nodes.devices)


def ruled(*job: object) -> Layout:
    """The layout that the rules of thumb give."""
    thumb = rule_of_thumb(question(*job))  # type: ignore[arg-type]
    assert thumb is not None
    return thumb.layout


def test_a_model_that_one_device_holds_is_replicated() -> None:
    # GPT-2: 124 M × 16 bytes = 1.9 GiB.
    layout = ruled("gpt2", "8xA100-40GB", 1024, 512)
    assert (layout.replicate, layout.zero_stage, layout.tensor, layout.pipeline) == (8, 0, 1, 1)


def test_seven_billion_parameters_on_one_node_are_sharded_and_not_split() -> None:
    # 100 GiB of states over 8 devices of 40 GB: neither ZeRO-1 (37 GiB) nor ZeRO-2 (25 GiB) leave room for much.
    layout = ruled("llama-2-7b", "8xA100-40GB", 4096, 64)
    assert layout.shard == 8
    assert layout.zero_stage >= 2
    assert (layout.tensor, layout.pipeline) == (1, 1)


def test_a_huge_model_gets_tensor_ranks_within_the_node_and_a_pipeline_across() -> None:
    layout = ruled("gpt3-175b", "1024xA100-80GB", 2048, 1536)
    assert 1 < layout.tensor <= 8
    assert layout.pipeline > 1
    assert layout.zero_stage == 1


def test_the_pipeline_is_no_deeper_than_it_takes() -> None:
    # Narayanan et al. 2021, takeaway 2: model parallelism just large enough for memory, then data parallelism.
    asked = question("gpt3-175b", "1024xA100-80GB", 2048, 1536)
    layout = ruled("gpt3-175b", "1024xA100-80GB", 2048, 1536)
    states = 175e9 * (2 + 2) / layout.tensor / layout.pipeline
    assert states < asked.cluster.device.memory_bytes < states * 4


def test_a_batch_smaller_than_the_devices_needs_more_than_data_parallelism() -> None:
    layout = ruled("llama-2-7b", "64xA100-80GB", 4096, 16)
    assert layout.data <= 16
    assert layout.tensor > 1


def test_a_long_sequence_is_split_over_context_or_tensor_ranks() -> None:
    layout = ruled("llama-3-8b", "64xH100", 131072, 16)
    assert layout.context * layout.tensor > 1


def test_experts_are_spread_within_the_node() -> None:
    layout = ruled("mixtral-8x7b", "64xH100", 4096, 1024)
    assert layout.expert == 8


@pytest.mark.parametrize(
    "job",
    [
        ("gpt2", "1xA100-40GB", 1024, 8),
        ("llama-2-70b", "64xA100-80GB", 4096, 512),
        ("bloom-176b", "384xA100-80GB", 2048, 2048),
        ("deepseek-v3", "512xH800", 4096, 4096),
        ("llama-3-8b", "24xH100", 8192, 48),
    ],
)
def test_the_rules_of_thumb_give_a_legal_layout(job: tuple[str, str, int, int]) -> None:
    asked = question(*job)
    layout = ruled(*job)
    found = violations(asked.model, asked.cluster, asked.workload, layout)
    assert not [broken for broken in found if len(broken.refused_by) == 3]


def test_where_nothing_fits_the_rules_say_so() -> None:
    asked = question("llama-2-70b", "8xA100-40GB", 4096, 64)
    assert rule_of_thumb(asked) is None
    assert advice(asked, None)[-1] == "The rules of thumb find no layout that fits."


@pytest.mark.parametrize("cluster", ["1xA100-40GB", "8xA100-40GB"])
def test_the_advice_has_the_jobs_numbers_and_a_verdict(cluster: str) -> None:
    asked = question("gpt2-xl", cluster, 1024, 64)
    plan = make_plan(asked.model, asked.cluster, asked.workload)
    lines = plan.advice
    # 1,557,611,200 × 16 bytes = 23.2 GiB; 64 × 1024 = 65,536 tokens.
    assert "23.2 GiB" in lines[0]
    assert "65,536 tokens a step" in lines[2]
    assert lines[-2].startswith("Rules of thumb: ")
    assert lines[-1].startswith(("The search agrees", "The search disagrees"))


def test_a_batch_that_the_devices_do_not_divide_is_told_with_those_that_they_do() -> None:
    # 7 and 8 have no common divisor; 4 and 8 are the next that several of 8 ranks divide.
    lines = advice(question("gpt2", "8xA100-40GB", 1024, 7), None)
    assert "no data-parallel ranks divide 7, more divide 4 and 8" in lines[2]
    assert near_batches(12, 8) == (8, 16)
    assert "divide" not in advice(question("gpt2", "8xA100-40GB", 1024, 16), None)[2]


def test_the_rule_agrees_with_what_it_says_of_one_device() -> None:
    roomy = question("gpt2", "1xA100-40GB", 1024, 8)
    need = one_device_bytes(roomy, "full")
    device = replace(roomy.cluster.device, memory_bytes=need * 1.02)
    tight = replace(roomy, cluster=replace(roomy.cluster, device=device))
    thumb = rule_of_thumb(tight)
    assert thumb is not None
    assert thumb.layout == Layout(recompute="full")
    assert "at risk" in thumb.because
    assert "barely holds the job" in advice(tight, None)[1]


def test_a_disagreement_is_priced() -> None:
    asked = question("gpt3-175b", "128xA100-80GB", 2048, 512)
    plan = make_plan(asked.model, asked.cluster, asked.workload, top=1)
    thumb = rule_of_thumb(asked)
    assert thumb is not None
    assert str(thumb.layout) in plan.advice[-2]
    if "disagrees" in plan.advice[-1]:
        assert "% slower than" in plan.advice[-1] or "times as long" in plan.advice[-1]
        assert "instead of" in plan.advice[-1]
