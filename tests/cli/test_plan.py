"""`meshwright plan`: keys that other tools read, exit codes, and what a person sees."""

from __future__ import annotations

import json
from typing import Any

import pytest

from meshwright.cli.frame import main

SMALL = ["plan", "gpt2", "--cluster", "4xA100-40GB", "--global-batch", "32"]


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    main([*arguments, "--json"])
    read: dict[str, Any] = json.loads(capsys.readouterr().out)
    return read


def test_the_document_has_the_promised_keys(capsys: pytest.CaptureFixture[str]) -> None:
    read = document(capsys, *SMALL, "--top", "3")
    promised = "model cluster workload searched feasible seconds plans rejected advice warnings"
    assert set(promised.split()) <= read.keys()
    assert [plan["rank"] for plan in read["plans"]] == [1, 2, 3]
    assert read["searched"] >= read["feasible"] >= 3
    for plan in read["plans"]:
        keys = "rank layout degrees step_seconds tokens_per_second_per_device mfu memory time verdict assumptions"
        assert set(keys.split()) <= plan.keys()
        assert plan["verdict"] in ("fits", "at risk")
    assert all(lost.keys() == {"reason", "count", "example"} for lost in read["rejected"])


def test_plans_are_ranked_by_step_time_and_their_parts_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    plans = document(capsys, *SMALL)["plans"]
    times = [float(f"{plan['step_seconds']:.3g}") for plan in plans]
    # The first one may be up to 1 % slower than the second, if it is simpler.
    assert times[1:] == sorted(times[1:])
    assert times[0] <= 1.011 * times[1]
    for plan in plans:
        assert sum(plan["memory"]["parts"].values()) == pytest.approx(plan["memory"]["total_gib"])
        assert sum(plan["time"]["parts"].values()) == pytest.approx(plan["step_seconds"])


def test_a_plan_is_priced_as_estimate_prices_its_layout(capsys: pytest.CaptureFixture[str]) -> None:
    best = document(capsys, *SMALL, "--top", "1")["plans"][0]
    alone = document(capsys, "estimate", *SMALL[1:], "--layout", best["layout"])["plan"]
    assert alone["memory"]["parts"] == pytest.approx(best["memory"]["parts"])
    assert alone["memory"]["peak_instant"] == best["memory"]["peak_instant"]
    # The search re-prices pipelines by simulation, the estimate by the closed form.
    assert alone["step_seconds"] == pytest.approx(best["step_seconds"], rel=0.1)


def test_a_model_that_fits_nowhere_is_exit_code_1_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    # 16 bytes × 405e9 parameters are 6 TiB.
    assert main(["plan", "llama-3.1-405b", "--cluster", "8xA100-40GB"]) == 1
    assert "No layout fits." in capsys.readouterr().out


def test_the_answer_comes_last_and_the_evidence_before(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    assert main(["plan", "llama-2-7b", "--cluster", "8xA100-40GB"]) == 0
    page = capsys.readouterr().out
    for told in ("layouts searched", "tokens/s/device", "Nearest published runs", "A100"):
        assert told in page
    assert page.strip().rsplit("\n\n", 1)[1].startswith("Use ")


def test_a_plan_names_the_best_layout_of_each_runtime(capsys: pytest.CaptureFixture[str]) -> None:
    read = document(capsys, *SMALL)
    assert [each["runtime"] for each in read["by_runtime"]] == ["pytorch", "megatron", "deepspeed"]
    assert all(each["best"]["verdict"] == "fits" for each in read["by_runtime"])
    assert document(capsys, *SMALL, "--runtime", "megatron")["by_runtime"] == []
    main(SMALL)
    assert "Best that each runtime can run" in capsys.readouterr().out


def test_the_nearest_runs_stand_beside_their_predictions(capsys: pytest.CaptureFixture[str]) -> None:
    nearest = document(capsys, "plan", "llama-2-7b", "--cluster", "8xA100-40GB")["nearest"]
    assert len(nearest) == 3
    for run in nearest:
        if run["predicted_step_seconds"] is not None:
            assert run["error"] == pytest.approx(run["predicted_step_seconds"] / run["step_seconds"] - 1)


def test_what_would_make_it_fit_is_told_where_nothing_does(capsys: pytest.CaptureFixture[str]) -> None:
    # 46.7e9 × 16 bytes are 696 GiB: more than eight of 80 GB.
    assert main(["plan", "mixtral-8x7b", "--cluster", "8xH100"]) == 1
    page = capsys.readouterr().out
    for told in ("What would make it fit", "--offload", "16 devices (2 nodes): fits", "--lora-rank 16"):
        assert told in page


def test_fewer_devices_than_there_are_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--objective", "devices"]) == 0
    assert "on 1 of 4 devices" in capsys.readouterr().out


def test_the_leanest_plan_needs_no_more_memory_than_the_fastest(capsys: pytest.CaptureFixture[str]) -> None:
    fastest = document(capsys, *SMALL)["plans"][0]
    leanest = document(capsys, *SMALL, "--objective", "memory")["plans"][0]
    assert leanest["memory"]["total_gib"] <= fastest["memory"]["total_gib"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["llama-2-7c"], "llama-2-7b"),
        (["no/such/config.json"], "does not exist"),
        (["gpt2", "--cluster", "8xA100-40"], "A100-40GB"),
        (["gpt2", "--cluster", "0xA100-40GB"], "0"),
        (["gpt2", "--objective", "speed"], "throughput"),
        (["gpt2", "--runtime", "torch"], "pytorch"),
        (["gpt2", "--cluster", "8xV100"], "--precision fp16"),
        (["gpt2", "--precision", "fp8"], "bf16"),
        (["gpt2", "--global-batch", "-8"], "--global-batch"),
        (["gpt2", "--seq-len", "0"], "--seq-len"),
        (["gpt2", "--inter-node", "fast"], "fast"),
    ],
)
def test_a_wrong_request_is_refused_with_what_is_legal(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert told in err


@pytest.mark.parametrize(
    ("option", "number", "legal"), [("--frozen-layers", "32", "0 to 31"), ("--lora-rank", "9999", "1 to 4096")]
)
def test_what_no_layout_could_be_legal_for_is_refused_at_once(
    capsys: pytest.CaptureFixture[str], option: str, number: str, legal: str
) -> None:
    assert main(["plan", "llama-2-7b", "--cluster", "8xA100-40GB", option, number]) == 2
    assert legal in capsys.readouterr().err


def test_adapters_need_no_more_devices_than_the_weights_and_their_own_states(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """8.03e9 x 2 bytes are 15 GiB: one device of 79 GiB holds them."""
    job = ["plan", "llama-3-8b", "--cluster", "1xH100", "--global-batch", "16", "--lora-rank", "16"]
    assert main(job) == 0
    assert "devices at least" not in capsys.readouterr().out


def test_a_layout_has_one_step_time_in_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    job = ["plan", "gpt3-13b", "--cluster", "16xA100-80GB", "--global-batch", "64", "--inter-node", "100Gbps", "--json"]
    assert main(job) == 0
    read = json.loads(capsys.readouterr().out)
    shown = {plan["layout"]: plan["step_seconds"] for plan in read["plans"]}
    line = {point["layout"]: point["step_seconds"] for point in read["pareto"]}
    assert shown.keys() & line.keys()
    assert all(line[layout] == shown[layout] for layout in shown.keys() & line.keys())
