"""`meshwright estimate`: keys that other tools read, sums that add up, and exit codes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from meshwright.cli.frame import main

JOB = ["estimate", "llama-2-7b", "--cluster", "8xA100-40GB", "--seq-len", "4096", "--global-batch", "64"]


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    main([*arguments, "--json"])
    read: dict[str, Any] = json.loads(capsys.readouterr().out)
    return read


def test_the_document_has_the_promised_keys(capsys: pytest.CaptureFixture[str]) -> None:
    read = document(capsys, *JOB, "--layout", "fsdp8 mbs2 ac:full")
    assert {"model", "cluster", "workload", "plan", "traffic"} <= read.keys()
    assert read["model"]["name"] == "llama-2-7b"
    assert read["model"]["parameters"] == 6738415616
    plan = read["plan"]
    promised = "rank layout degrees step_seconds tokens_per_second_per_device mfu memory time verdict assumptions"
    assert set(promised.split()) <= plan.keys()
    assert {"total_gib", "parts", "peak_instant"} <= plan["memory"].keys()
    assert plan["layout"] == "fsdp8 mbs2 ac:full"
    assert plan["degrees"] == {"replicate": 1, "shard": 8, "context": 1, "tensor": 1, "expert": 1, "pipeline": 1}
    assert plan["assumptions"]
    assert all({"axis", "collective", "count", "bytes"} <= traffic.keys() for traffic in read["traffic"])


@pytest.mark.parametrize("layout", ["fsdp8 mbs2 ac:full", "tp2 zero1:4", "tp2 pp2:1f1b zero1:2 ac:selective", "ddp8"])
def test_the_parts_add_up_to_the_whole(layout: str, capsys: pytest.CaptureFixture[str]) -> None:
    plan = document(capsys, *JOB, "--layout", layout)["plan"]
    assert sum(plan["memory"]["parts"].values()) == pytest.approx(plan["memory"]["total_gib"], rel=1e-9)
    assert sum(plan["time"]["parts"].values()) == pytest.approx(plan["step_seconds"], rel=1e-9)
    tokens = 4096 * 64 / plan["step_seconds"] / 8
    assert plan["tokens_per_second_per_device"] == pytest.approx(tokens, rel=1e-9)


def test_fully_sharded_llama_fits_eight_a100_and_replicated_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    # 16 bytes × 6.74e9 are 100 GiB: over eight devices 12.6, on one far beyond 40.
    assert main([*JOB, "--layout", "fsdp8 mbs1 ac:full"]) == 0
    assert main([*JOB, "--layout", "ddp8"]) == 1
    assert "does not fit" in capsys.readouterr().out


def test_people_see_parts_peak_speed_traffic_and_assumptions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*JOB, "--layout", "fsdp8 mbs1 ac:full"]) == 0
    page = capsys.readouterr().out
    for told in (
        "peak at",
        "optimizer",
        "recompute",
        "tokens/s",
        "MFU",
        "HFU",
        "bubble",
        "16 bytes",
        "all-gather",
        "·",
    ):
        assert told in page


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--layout", "fdsp8"], "fsdp8"),
        (["--layout", "tp3 fsdp8"], "Legal: "),
        (["--layout", "fsdp16"], "16"),
        (["--layout", "fsdp8", "--precision", "bf61"], "bf16"),
        (["--layout", "fsdp8 mbs3"], "64"),
        ([], "--layout"),
    ],
)
def test_an_impossible_request_is_refused_with_what_is_legal(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*JOB, *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert told in err
