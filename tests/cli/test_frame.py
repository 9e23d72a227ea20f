"""The command's frame: verbs, exit codes, and what goes to which stream."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from meshwright.cli import frame
from meshwright.cli.frame import VERBS, build_app, main, verbs_to_load

COMMAND = [sys.executable, "-m", "meshwright"]


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line.replace('meshwright', ' '.join(COMMAND))}"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


def test_without_a_verb_the_help_page_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    page = capsys.readouterr().out
    assert all(verb in page for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_its_examples(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    page = " ".join(capsys.readouterr().out.split())
    examples = import_module(f"meshwright.cli.{verb}").EXAMPLES
    assert examples
    assert all(example.startswith(f"meshwright {verb}") and example.split(" | ")[0] in page for example in examples)


def test_only_the_verb_that_is_called_is_loaded() -> None:
    assert verbs_to_load(["models", "--json"]) == ("models",)
    assert verbs_to_load(["--help"]) == VERBS
    assert verbs_to_load(["modles"]) == VERBS


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["modles"], "Did you mean 'models'?"),
        (["models", "--jsn"], "--json"),
        (["history", "--limit", "0"], "--limit"),
        (["history", "--limit", "many"], "--limit"),
        (["models", "zzz"], "`meshwright models` lists all"),
        (["models", "lamma-2"], "Legal: llama-2"),
        (["clusters", "zzz"], "`meshwright clusters` lists all"),
        (["history", "zzz"], "`meshwright history` lists all"),
        (["history", "llama", "--device", "zzz"], "device contains 'zzz'"),
        (["plan", ""], "not by ''"),
        (["plan", "--cluster", ""], "''"),
        (["plan", "nosuch"], "`meshwright models`"),
        (["plan", "--cluster", "12xA100-80GB"], "--devices-per-node 6, --devices-per-node 4"),
        (["clusters", "H10O"], "Legal: "),
    ],
)
def test_a_wrong_request_is_one_message_and_exit_code_2(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert told in err
    assert "Traceback" not in err


def test_an_interrupted_verb_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def interrupted(*_: object, **__: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr("meshwright.plan.history.list_runs", interrupted)
    assert main(["history"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_an_interrupt_while_modules_load_is_one_line() -> None:
    code = """
import sys
class Interrupt:
    def find_spec(self, name, *_):
        if name == "meshwright.cli.frame":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
from meshwright.__main__ import run
run()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_the_console_script_is_the_module() -> None:
    root = Path(__file__).parent.parent.parent
    scripts = tomllib.loads((root / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"meshwright": "meshwright.__main__:run"}


@pytest.mark.parametrize(
    "line",
    [
        "history --limit 2000 --json",
        "history --limit 2000",
        "models",
        "estimate gpt2 --layout fsdp8",
        "explain zero",
        "backtest --source simumax",
    ],
)
def test_a_closed_pipe_is_quiet(line: str) -> None:
    # `true` reads nothing and is gone before the first line is written.
    done = shell(f"meshwright {line} | true")
    assert done.stdout == ""
    assert done.stderr == ""
    assert done.returncode == frame.PIPE_CLOSED


def test_no_colour_off_a_terminal_and_under_no_color() -> None:
    assert "\x1b" not in shell("meshwright models").stdout
    assert "\x1b[3" not in shell("meshwright models", NO_COLOR="1", FORCE_COLOR="1").stdout


def test_output_survives_a_terminal_that_knows_only_ascii() -> None:
    done = shell("meshwright clusters", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert "A100-80GB" in done.stdout


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("meshwright mod", "models"),
        ("meshwright clusters A100-4", "A100-40GB"),
        ("meshwright models llama-2-7", "llama-2-7b"),
    ],
)
def test_bash_completion_offers_verbs_and_values(typed: str, offered: str) -> None:
    words = typed.split(" ")
    asked = subprocess.run(
        COMMAND,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ
        | {"_MESHWRIGHT_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)},
    )
    assert offered in asked.stdout.split()


@pytest.mark.parametrize("arguments", [["models"], ["clusters"], ["history", "--limit", "3"]])
def test_json_is_one_document_on_stdout(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert isinstance(json.loads(out), dict)


def test_an_application_can_hold_one_verb_only() -> None:
    assert [command.name for command in build_app(["models"]).registered_commands] == ["models"]
