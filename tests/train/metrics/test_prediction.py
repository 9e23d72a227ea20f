"""What is predicted of a run, and how it stands beside the measurement."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshwright.cost.estimate import estimate
from meshwright.spec.notation import parse_layout
from meshwright.spec.workload import make_workload
from meshwright.train.config.here import Here
from meshwright.train.config.job import Job
from meshwright.train.config.models import model_to_train
from meshwright.train.config.read import read_config
from meshwright.train.config.resolve import resolve
from meshwright.train.metrics.heading import heading_lines
from meshwright.train.metrics.prediction import (
    Measurement,
    comparison_lines,
    predict,
    prediction_document,
    prediction_lines,
    state_bytes_of_rank,
)
from meshwright.train.metrics.summary import read_summary, summary_document, write_summary
from meshwright.train.metrics.usage import HOST

from .reports import report

LLAMA = 6_738_415_616
"""Parameters of Llama 2 7B."""


def job(**flags: str) -> Job:
    return resolve(read_config(None, {path.replace("__", "."): text for path, text in flags.items()}), Here())


@pytest.mark.parametrize(
    ("layout", "parameters", "gradients", "optimizer"),
    [
        ("ddp8", 4.0, 4.0, 8.0),  # fp32 AdamW: 4 + 4 + 8 bytes a parameter
        ("zero1:8", 4.0, 4.0, 8.0 / 8),
        ("zero2:8", 4.0, 4.0 / 8, 8.0 / 8),
        ("fsdp8", 4.0 / 8, 4.0 / 8, 8.0 / 8),
    ],
)
def test_states_are_those_of_the_zero_paper(layout: str, parameters: float, gradients: float, optimizer: float) -> None:
    workload = make_workload(512, 16, precision="fp32")
    found = state_bytes_of_rank(model_to_train("llama-2-7b"), workload, parse_layout(layout))
    assert found == {
        "parameters": pytest.approx(parameters * LLAMA),
        "gradients": pytest.approx(gradients * LLAMA),
        "optimizer": pytest.approx(optimizer * LLAMA),
    }


def test_the_fullest_stage_of_a_pipeline_counts() -> None:
    model, workload = model_to_train("llama-2-7b"), make_workload(512, 16, precision="fp32")
    # 32 layers by hand: the second of three stages has twice what the others have.
    layout = parse_layout("pp3 stages:8-16-8")
    layer = (LLAMA - 2 * 32000 * 4096 - 4096) / 32
    assert state_bytes_of_rank(model, workload, layout)["parameters"] == pytest.approx(4 * 16 * layer)
    # Cut by the runtime, embedding and head are a layer each: 11 layers and the embedding are the first stage's share.
    states = state_bytes_of_rank(model, workload, parse_layout("pp3"))
    edge = 32000 * 4096
    assert states["parameters"] == pytest.approx(4 * (11 * layer + edge), rel=1e-6)


def test_on_a_cpu_the_states_are_known_and_the_rest_says_why_not() -> None:
    found = predict(job(layout="fsdp2"))
    assert found.estimate is None
    assert "no prediction: no cluster file for this CPU" in found.missing
    lines = prediction_lines(job(layout="fsdp2"), found)
    assert lines[0].startswith("states of the fullest rank: 10 MiB (parameters 2.5 MiB, gradients 2.5 MiB, optimizer")
    assert lines[-1] == found.missing


def test_on_a_cluster_time_is_the_estimates_and_memory_is_counted() -> None:
    asked = job(layout="fsdp8", cluster="8xH100", train__precision="bf16", model="llama-3.2-1b", train__seq_len="1024",
                train__global_batch="8")  # fmt: skip
    found = predict(asked)
    assert found.estimate is not None
    assert asked.cluster is not None
    priced = estimate(asked.model, asked.cluster, asked.workload, asked.layout)
    assert found.estimate.step_seconds == priced.step_seconds
    # 1.2 G parameters of 4 bytes and two moments over 8 ranks; the whole embedding, tied to the head, in bf16; of 16
    # layers 2 bytes of 4 + 2 + 2·8/32 hidden widths and 4 feed-forward widths a token, and 4 a head and 8 a token; of a
    # logit three fp32 numbers.
    layer = 2 * 1024 * (2048 * (4 + 2 + 2 * 8 / 32) + 4 * 8192) + 4 * 1024 * (32 + 2)
    states = 12 * 1_235_814_400 / 8
    by_hand = states + 2 * 128_256 * 2048 + 16 * layer + 12 * 1024 * 128_256
    memory = found.estimate.memory.peak_bytes
    assert memory == pytest.approx(by_hand, rel=0.02)
    document = prediction_document(found)
    assert document["memory_bytes"] == memory
    assert document["missing"] is None
    assert "predicted on 8xH100: memory" in prediction_lines(asked, found)[1]


def test_an_unknown_gpu_is_named() -> None:
    asked = resolve(read_config(None, {"layout": "fsdp2"}), Here(gpus=2, gpu="NVIDIA RTX A6000"))
    assert "NVIDIA RTX A6000 is not in the catalogue" in predict(asked).missing


def test_at_the_end_prediction_stands_beside_measurement() -> None:
    found = predict(job(layout="fsdp8", cluster="8xH100"))
    assert found.estimate is not None
    seconds, size = found.estimate.step_seconds, found.estimate.memory.peak_bytes
    lines = comparison_lines(found, Measurement(seconds * 2, 1000.0, size * 0.8, "peak"))
    assert "50.0 % too low" in lines[0]
    assert "25.0 % too high" in lines[1]


def test_without_a_prediction_the_measurement_stands_alone() -> None:
    found = predict(job(layout="ddp2"))
    lines = comparison_lines(found, Measurement(0.25, 1000.0, 512 * 2.0**20, HOST))
    assert lines[0] == "measured: step 250 ms"
    assert f"512 MiB ({HOST})" in lines[1]
    assert lines[-1] == found.missing


def test_the_heading_tells_model_work_ranks_layout_and_what_was_chosen() -> None:
    text = "\n".join(heading_lines(job()))
    for told in ("tiny-llama, 1.31 M parameters", "2 CPU ranks (gloo)", "ddp2 mbs8", "200 steps of 16 × 256 tokens"):
        assert told in text
    assert "(1 micro-batch of 8 a data rank)" in text
    assert "no layout given" in text


def test_a_summary_is_written_whole_and_read_back(tmp_path: Path) -> None:
    asked = job(run=str(tmp_path))
    measured = Measurement(0.25, 1000.0, float("inf"), HOST)
    document = summary_document(asked, predict(asked), measured, report(200, loss=float("nan")), layout_run="ddp2 mbs8")
    assert read_summary(tmp_path) is None
    write_summary(tmp_path, document)
    found = read_summary(tmp_path)
    assert found is not None
    assert (found["measurement"]["step_seconds"], found["measurement"]["memory_bytes"]) == (0.25, None)
    assert (found["last"]["step"], found["last"]["loss"], found["layout_run"]) == (200, None, "ddp2 mbs8")
    assert found["config"]["train"]["steps"] == 200
    assert json.loads((tmp_path / "summary.json").read_text()) == found
