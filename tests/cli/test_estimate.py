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


def test_several_layouts_are_compared_those_that_fit_first_the_fastest_on_top(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert main([*JOB, "--layout", "ddp8, fsdp8 ac:full, fsdp8 ac:{selective,full}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    layouts = [line for line in lines if line.startswith(("ddp8", "fsdp8"))]
    assert [line.split("  ")[0] for line in layouts] == ["fsdp8 ac:selective", "fsdp8 ac:full", "ddp8"]
    assert "does not fit" in layouts[-1]


def test_the_document_of_several_layouts_has_a_price_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    layouts = ["fsdp8 ac:full", "fsdp4 tp2 ac:full"]
    read = document(capsys, *JOB, "--layout", ", ".join(layouts))
    assert "plan" not in read
    assert [plan["rank"] for plan in read["plans"]] == [1, 2]
    for plan in read["plans"]:
        alone = document(capsys, *JOB, "--layout", plan["layout"])
        assert plan["traffic"] == alone["traffic"]
        assert plan | {"rank": 1} == alone["plan"] | {"traffic": alone["traffic"]}
    assert {plan["layout"] for plan in read["plans"]} == set(layouts)


def test_a_list_of_which_nothing_fits_is_exit_code_1() -> None:
    assert main([*JOB, "--layout", "ddp8, ddp8 mbs2"]) == 1


def test_a_refusal_in_a_list_names_the_layout(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*JOB, "--layout", "fsdp8, fsdp4 tp2 mbs3"]) == 2
    assert "In fsdp4 tp2 mbs3: " in capsys.readouterr().err


def test_one_device_sends_nothing_and_no_empty_table_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "gpt2", "--cluster", "1xA100-40GB", "--layout", "ddp1"]) == 0
    assert "Traffic" not in capsys.readouterr().out


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
