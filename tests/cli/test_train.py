"""`meshwright train`: flags, refusals, what it prints before anything runs, and whom it starts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from meshwright.cli.frame import main
from meshwright.train.config.keys import keys
from meshwright.train.config.read import read_config
from meshwright.train.config.tree import TrainConfig

DRY = ["train", "--dry-run"]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MESHWRIGHT_CACHE", str(tmp_path / "cache"))
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    read: dict[str, Any] = json.loads(out)
    return read


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--train.stps", "3"], "--train.steps"),
        (["--steps", "3"], "--train.steps"),
        (["--train.steps", "many"], "--train.steps must be a whole number, not 'many'. Legal: from 1."),
        (["--train.precision", "bf61"], "Legal: fp32, bf16, fp16"),
        (["--optimizer.name", "adma"], "--optimizer.name"),
        (["--layout", "fdsp2"], "Legal: fsdp2"),
        (["--layout", "fsdp2 tp3"], "8 attention heads cannot be split over 3"),
        (["--layout", "fsdp2", "--launch.ranks", "4"], "Legal: --launch.ranks 2"),
        (["--model", "tiny-lama"], "Legal: tiny-llama"),
        (["--metrics.wandb"], "pip install wandb"),
        (["nosuch.toml"], "nosuch.toml"),
        (["--data.source", "nosuch.txt"], "nosuch.txt"),
        (["--checkpoint.load", "nosuch"], "nosuch"),
    ],
)
def test_a_wrong_request_is_one_message_and_starts_nothing(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["train", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert told in err
    assert "Traceback" not in err
    assert not (tmp_path / "runs").exists()


def test_an_error_in_the_file_names_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("run.toml").write_text("[train]\nstesp = 3\n")
    assert main(["train", "run.toml"]) == 2
    err = capsys.readouterr().err
    assert "run.toml, line 2: unknown key 'train.stesp'. Legal: train.steps" in err


def test_a_world_of_another_size_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = {"RANK": "0", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "4"}
    for name, value in (world | {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}).items():
        monkeypatch.setenv(name, value)
    assert main(["train", "--layout", "fsdp2"]) == 2
    assert "needs 2 ranks, torchrun started 4 ranks" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--show-config"],
        ["--dry-run"],
        ["--layout", "fdsp2"],
        ["--layout", "fsdp2 tp3"],
        ["--train.steps", "many"],
    ],
)
def test_help_configuration_prediction_and_refusals_need_no_torch(arguments: list[str]) -> None:
    # A module that is None in sys.modules cannot be imported.
    code = (
        "import sys; sys.modules['torch'] = None\n"
        f"from meshwright.cli.frame import main; sys.exit(main(['train', *{arguments!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert done.returncode == (0 if arguments[0] in ("--help", "--show-config", "--dry-run") else 2)


def test_every_key_is_a_flag_with_its_help(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["train", "--help"]) == 0
    page = capsys.readouterr().out
    for path, key in keys().items():
        assert re.search(rf"--{re.escape(path)}[ ,]", page)
        if key.kind is bool:
            section, dot, name = path.rpartition(".")
            assert f"--{section}{dot}no-{name}" in page


def test_the_configuration_that_is_shown_runs_again_as_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--train.steps", "7", "--checkpoint.no-async", "--show-config"]) == 0
    Path("run.toml").write_text(capsys.readouterr().out)
    read = read_config("run.toml")
    assert (read.train.steps, read.checkpoint.async_, read.layout) == (7, False, "ddp2 mbs8")
    assert main(["train", "run.toml", "--show-config"]) == 0
    assert capsys.readouterr().out == Path("run.toml").read_text()


def test_flags_win_over_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("run.toml").write_text("[train]\nsteps = 7\nseq_len = 64\n[metrics]\ntensorboard = false\n")
    read = document(capsys, "train", "run.toml", "--train.steps", "9", "--metrics.tensorboard", "--show-config")
    assert (read["train"]["steps"], read["train"]["seq_len"]) == (9, 64)
    assert read["metrics"]["tensorboard"] is True
    assert read["train"]["global_batch"] == TrainConfig().train.global_batch


def test_a_dry_run_tells_layout_and_prediction_and_starts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*DRY, "--layout", "fsdp2 tp2"]) == 0
    page = capsys.readouterr().out
    for told in ("tiny-llama", "4 CPU ranks (gloo): fsdp2 tp2", "states of the fullest rank", "no prediction"):
        assert told in page
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_on_a_named_cluster_predicts_memory_and_time(capsys: pytest.CaptureFixture[str]) -> None:
    read = document(capsys, *DRY, "--layout", "fsdp8", "--cluster", "8xH100", "--train.precision", "bf16")
    assert {"model", "workload", "layout", "ranks", "config", "prediction", "notes"} <= read.keys()
    predicted = read["prediction"]
    assert predicted["step_seconds"] > 0
    assert predicted["memory_bytes"] > sum(predicted["state_bytes"].values())
    assert predicted["verdict"] == "fits"
    # fp32 AdamW states, 16 bytes a parameter, over 8 ranks.
    assert sum(predicted["state_bytes"].values()) == pytest.approx(2 * read["model"]["parameters"])


def test_a_dry_run_of_what_does_not_fit_is_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    large = ["--model", "llama-2-70b", "--layout", "ddp8", "--cluster", "8xA100-40GB", "--data.source", "synthetic"]
    assert main([*DRY, *large]) == 1
    assert "does not fit" in capsys.readouterr().out


def test_without_a_launcher_it_starts_the_ranks_of_the_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: dict[str, Any] = {}

    def launch(command: list[str], ranks: int, folder: Path, *, threads: int | None) -> int:
        started.update(command=command, ranks=ranks, folder=folder, threads=threads)
        (folder / "summary.json").write_text('{"last": {"loss": 2.5}}')
        return 0

    monkeypatch.setattr("meshwright.train.launch.local.launch_local", launch)
    Path("runs/a").mkdir(parents=True)
    Path("runs/a/summary.json").write_text('{"last": "of another run"}')
    flags = ["--layout", "fsdp2 tp2 mbs2", "--run", "runs/a", "--data.source", "synthetic"]
    read = document(capsys, "train", *flags)
    assert started["command"] == [sys.executable, "-m", "meshwright", "train", "runs/a/config.toml"]
    assert (started["ranks"], started["folder"], started["threads"]) == (4, Path("runs/a"), None)
    assert read_config("runs/a/config.toml").layout == "fsdp2 tp2 mbs2"
    assert read == {"last": {"loss": 2.5}}


def test_a_run_that_ends_badly_passes_its_exit_code_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshwright.train.launch.local.launch_local", lambda *_, **__: 143)
    assert main(["train", "--data.source", "synthetic"]) == 143


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("meshwright train --train.st", "--train.steps"),
        ("meshwright train --train.precision b", "bf16"),
        ("meshwright train --model tiny-l", "tiny-llama"),
        ("meshwright train --cluster 8xH2", "8xH200"),
    ],
)
def test_bash_completion_offers_flags_and_names(typed: str, offered: str) -> None:
    asked = subprocess.run(
        [sys.executable, "-m", "meshwright"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ
        | {"_MESHWRIGHT_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split(" ")) - 1)},
    )
    assert offered in asked.stdout.split()
