"""Defaults, file and flags become one configuration; every error says what, where and what is legal."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.train.config.keys import Key, keys
from meshwright.train.config.legal import MOST, Between
from meshwright.train.config.read import check_config, read_config, with_values
from meshwright.train.config.toml_file import read_values, save, to_toml
from meshwright.train.config.tree import TrainConfig
from meshwright.train.config.values import ConfigError


def written(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text)
    return path


def test_a_flag_wins_over_the_file_and_the_file_over_the_default(tmp_path: Path) -> None:
    path = written(tmp_path, "seed = 3\n[train]\nsteps = 40\nseq_len = 128\n[optimizer]\nlr = 1e-3\n")
    read = read_config(path, {"train.steps": "50", "checkpoint.async": "false"})
    assert (read.seed, read.train.steps, read.train.seq_len, read.optimizer.lr) == (3, 50, 128, 1e-3)
    assert read.checkpoint.async_ is False
    assert read.train.global_batch == TrainConfig().train.global_batch


def test_nothing_said_is_the_default_configuration() -> None:
    assert read_config() == TrainConfig()
    assert TrainConfig().model == "tiny-llama"


def test_sequence_length_and_seed_of_the_data_are_those_of_the_run() -> None:
    read = read_config(None, {"train.seq_len": "96", "seed": "7"})
    assert (read.data.seq_len, read.data.seed) == (96, 7)
    assert TrainConfig().data.seq_len == TrainConfig().train.seq_len


def test_a_list_is_written_with_commas_and_one_path_needs_none() -> None:
    read = read_config(None, {"data.source": "a.txt, b.txt", "optimizer.betas": "0.8,0.9"})
    assert read.data.sources == ("a.txt", "b.txt")
    assert read.optimizer.betas == (0.8, 0.9)
    assert read_config(None, {"data.source": "a.txt"}).data.source == "a.txt"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("seed = 1\n\n[train]\nstesp = 3\n", ["run.toml, line 4", "stesp", "train.steps"]),
        ("sed = 1\n", ["run.toml, line 1", "'sed'", "seed"]),
        ("\nlr = 1e-3\n", ["run.toml, line 2", "optimizer.lr"]),
        ("[data]\nseq_len = 3\n", ["run.toml, line 2", "train.seq_len"]),
        ("[optimiser]\nlr = 1e-3\n", ["run.toml, line 1", "optimizer"]),
        ("[train]\nsteps = 2.5\n", ["run.toml, line 2", "train.steps must be a whole number, not 2.5"]),
        ("[train]\nsteps = true\n", ["line 2", "must be a whole number, not True"]),
        ("[train]\ncompile = 1\n", ["line 2", "must be true or false"]),
        ("[train]\nmax_norm = nan\n", ["line 2", "finite"]),
        ("[train]\nsteps = 0\n", ["line 2", "train.steps is 0", "from 1"]),
        ('[train]\n# a comment\nprecision = "bf61"\n', ["line 3", "'bf61'", "Legal: fp32, bf16, fp16"]),
        ("train = 3\n", ["line 1", "train is a section, written [train]"]),
        ("[train]\n[train]\n", ["run.toml", "broken TOML", "line 2"]),
        ("[train\n", ["broken TOML", "line 1"]),
        ("[optimizer]\nname = 'sgd'\nbetas = [0.9, 0.95]\n", ["run.toml, line 3", "sgd has no 'betas'"]),
        ("[optimizer]\nlr = -1.0\n", ["run.toml, line 2", "lr is -1.0"]),
        ("[optimizer]\nbetas = [0.9]\n", ["line 2", "must have 2 items"]),
        ("[data]\nsource = [1]\n", ["line 2", "data.source must be a text"]),
    ],
)
def test_an_error_in_a_file_names_the_line_and_what_is_legal(text: str, told: list[str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        read_config(written(tmp_path, text))
    for part in told:
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"train.stps": "3"}, ["--train.stps", "Legal: --train.steps"]),
        ({"lr": "3"}, ["Legal: --optimizer.lr"]),
        ({"train.steps": "many"}, ["--train.steps must be a whole number, not 'many'"]),
        ({"train.compile": "yes"}, ["--train.compile must be true or false"]),
        ({"optimizer.lr": "inf"}, ["--optimizer.lr is inf: it must be finite"]),
        ({"optimizer.lr": "-1"}, ["--optimizer.lr: lr is -1.0"]),
        ({"seed": "-1"}, ["--seed is -1", "0 to"]),
        ({"model": "\udcff"}, ["--model is not UTF-8"]),
    ],
)
def test_an_error_in_a_flag_names_the_flag(flags: dict[str, str], told: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        read_config(None, flags)
    for part in told:
        assert part in str(error.value)


def test_a_file_that_cannot_be_read_is_one_message(tmp_path: Path) -> None:
    for path, told in ((tmp_path / "none.toml", "No such file"), (tmp_path, "directory")):
        with pytest.raises(ConfigError, match=told):
            read_config(path)
    (tmp_path / "bytes.toml").write_bytes(b"model = '\xff'\n")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_config(tmp_path / "bytes.toml")
    (tmp_path / "large.toml").write_text("#" * (2**20 + 1))
    with pytest.raises(ConfigError, match="at most 1024 KiB"):
        read_config(tmp_path / "large.toml")


def value(key: Key) -> st.SearchStrategy[Any]:
    """Legal values of one key, as far as the key itself says."""
    between = next((rule for rule in key.rules if isinstance(rule, Between)), Between(0, MOST))
    low, high = between.least, min(between.most, float(MOST))
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    of_kind: dict[type, st.SearchStrategy[Any]] = {
        bool: st.booleans(),
        int: st.integers(int(low), int(high)),
        float: st.floats(low, high),
        str: st.sampled_from(key.names) if key.names else text,
    }
    return of_kind[key.kind]


OWN = [key for key in keys().values() if key.section not in ("data", "optimizer", "schedule")]


@given(st.fixed_dictionaries({}, optional={key.path: value(key) for key in OWN}))
def test_what_is_saved_reads_back_equal(values: dict[str, Any]) -> None:
    config = with_values(TrainConfig(), values)
    table = tomllib.loads(to_toml(config))
    for path, given_value in values.items():
        place: Any = table
        for part in path.split("."):
            place = place[part]
        assert place == given_value


@pytest.mark.parametrize("docs", [True, False])
def test_a_saved_configuration_is_the_same_configuration(docs: bool, tmp_path: Path) -> None:
    config = read_config(
        None,
        {
            "model": 'a "quoted" \\ name\n\t',
            "data.source": "a.txt,b.txt",
            "optimizer.name": "muon",
            "optimizer.tables": "embed.*",
            "optimizer.table_lr": "1e-3",
            "schedule.name": "wsd",
            "schedule.decay_steps": "7",
            "parallel.capacity": "1.25",
            "checkpoint.async": "false",
        },
    )
    assert read_config(written(tmp_path, to_toml(config, docs=docs))) == config
    save(config, tmp_path / "saved" / "config.toml")
    assert read_config(tmp_path / "saved" / "config.toml") == config


def test_every_key_is_in_the_saved_file_with_its_help() -> None:
    text = to_toml(TrainConfig())
    for key in keys().values():
        assert f"\n{key.name} = " in text or f"\n# {key.name} =\n" in text
        assert key.doc.split(". ")[0] in text


def test_saving_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.toml"
    save(TrainConfig(), path)
    before = path.read_text()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ConfigError, match="No space left"):
        save(replace(TrainConfig(), seed=5), path)
    assert path.read_text() == before
    assert [one.name for one in tmp_path.iterdir()] == ["config.toml"]


def test_a_configuration_made_in_python_is_checked_alike() -> None:
    config = TrainConfig()
    check_config(config)
    wrong = replace(config, train=replace(config.train, steps=0))
    with pytest.raises(ConfigError, match=r"train\.steps is 0"):
        check_config(wrong)
    with pytest.raises(ConfigError, match=r"There is no key 'train\.stps'"):
        with_values(config, {"train.stps": 3})


def test_values_of_a_file_know_their_lines(tmp_path: Path) -> None:
    path = written(tmp_path, 'model = "gpt2"\n[train]\nsteps = 9\n')
    found = read_values(path)
    assert {name: (one.value, one.place) for name, one in found.items()} == {
        "model": ("gpt2", f"{path}, line 1"),
        "train.steps": (9, f"{path}, line 3"),
    }
