"""What cannot go well is refused in one message, before anything is lost."""

from __future__ import annotations

import json
import shutil
from collections import namedtuple
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from meshwright.cli.frame import main
from meshwright.cost.schedules import format_table, table
from meshwright.spec.errors import RequestError
from meshwright.train.checkpoint.errors import CheckpointError
from meshwright.train.launch.pool import RankPool
from meshwright.train.metrics.jsonl import read_steps

from .runs import NANO, run, work

Usage = namedtuple("Usage", "total used free")


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def test_a_damaged_newest_checkpoint_is_passed_over_with_a_warning(ranks: RankPool, tmp_path: Path) -> None:
    whole = run(ranks, tmp_path, "ddp2", train__steps=3, checkpoint__every=1)
    newest = tmp_path / "checkpoints" / "step-00000003"
    flip(newest / "__0_0.distcp")
    again = run(ranks, tmp_path, "fsdp2", warns=True, train__steps=3, checkpoint__every=1)
    assert "step-00000003 is damaged" in (tmp_path / "logs" / "rank-0000.log").read_text()
    assert [step["loss"] for step in again] == pytest.approx([step["loss"] for step in whole], rel=2e-6)
    assert [step["step"] for step in again] == [1, 2, 3]


def test_a_run_whose_checkpoints_are_all_damaged_does_not_start_anew(ranks: RankPool, tmp_path: Path) -> None:
    run(ranks, tmp_path, "ddp2", train__steps=2, checkpoint__every=1)
    for name in checkpoints(tmp_path):
        flip(tmp_path / "checkpoints" / name / "__0_0.distcp")
    before = (tmp_path / "metrics.jsonl").read_bytes()
    with pytest.raises(CheckpointError, match=r"No checkpoint in .* is whole"):
        run(ranks, tmp_path, "ddp2", train__steps=3)
    assert checkpoints(tmp_path) == ["step-00000001", "step-00000002"]
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"model": "tiny-gpt2"}, "is of another model"),
        ({"train__seq_len": 16}, "of other data"),
        ({"optimizer__name": "sgd"}, "momentum_buffer"),
        ({"checkpoint__load": "…"}, "a folder of checkpoints"),
    ],
)
def test_what_does_not_fit_a_checkpoint_is_refused_and_nothing_is_touched(
    ranks: RankPool, tmp_path: Path, flags: dict[str, Any], told: str
) -> None:
    run(ranks, tmp_path / "run", "ddp2", train__steps=1)
    target = tmp_path / "run"
    if "checkpoint__load" in flags:
        target, flags = tmp_path / "other", {"checkpoint__load": tmp_path / "run" / "checkpoints"}
    with pytest.raises(RequestError, match=told):
        run(ranks, target, "ddp2", train__steps=2, **flags)
    assert checkpoints(tmp_path / "run") == ["step-00000001"]
    assert len(read_steps(tmp_path / "run" / "metrics.jsonl")) == 1


def with_full_disk(folder: str, flags: dict[str, str], full_from: int, full_to: int) -> int:
    """A run on a disk without room when it is asked for the n-th time, first ≤ n < last; returns the steps done."""
    asked, usage = [0], shutil.disk_usage

    def full(path: Any) -> Any:
        asked[0] += 1
        return Usage(100, 99, 1) if full_from <= asked[0] < full_to else usage(path)

    shutil.disk_usage = full  # type: ignore[assignment]
    try:
        return work(folder, "ddp2", flags).steps
    finally:
        shutil.disk_usage = usage


FLAGS = {"train.steps": "3", "checkpoint.every": "1", "checkpoint.keep": "5"}


def test_a_run_that_could_not_save_does_not_start(ranks: RankPool, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="No room for a checkpoint"):
        ranks.run(with_full_disk, str(tmp_path), FLAGS, 1, 2, world=2)
    assert not (tmp_path / "metrics.jsonl").exists()
    assert checkpoints(tmp_path) == []


def test_a_disk_that_is_full_for_a_while_costs_one_checkpoint(ranks: RankPool, tmp_path: Path) -> None:
    assert ranks.run(with_full_disk, str(tmp_path), FLAGS, 3, 4, world=2) == [3, 3]
    assert checkpoints(tmp_path) == ["step-00000001", "step-00000003"]
    assert "No room for a checkpoint of step 2" in (tmp_path / "logs" / "rank-0000.log").read_text()


def test_a_disk_that_stays_full_fails_the_run_and_keeps_what_there_was(ranks: RankPool, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="No room for a checkpoint of step 3"):
        ranks.run(with_full_disk, str(tmp_path), FLAGS, 3, 99, world=2)
    assert checkpoints(tmp_path) == ["step-00000001"]
    assert len(read_steps(tmp_path / "metrics.jsonl")) == 3


def test_numbers_that_are_none_any_more_are_never_saved(ranks: RankPool, tmp_path: Path) -> None:
    flags = {"optimizer__name": "sgd", "optimizer__lr": 1e30, "train__max_norm": 0, "checkpoint__every": 1}
    with pytest.raises(RequestError, match="The run diverges: in step 2"):
        run(ranks, tmp_path, "ddp2", **flags)
    assert checkpoints(tmp_path) == ["step-00000001"]


def test_too_little_held_out_is_refused_before_the_first_step(ranks: RankPool, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a few words " * 400)
    with pytest.raises(RequestError, match="An evaluation needs a global batch of 8 sequences; 2 are held out"):
        run(
            ranks, tmp_path / "run", "ddp2", train__eval_every=1, data__validation_share=0.0134,
            data__source=tmp_path / "text.txt", data__cache_dir=tmp_path / "cache",
        )  # fmt: skip
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_an_export_that_would_overwrite_is_refused_before_the_first_step(ranks: RankPool, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "precious.txt").write_text("mine")
    with pytest.raises(RequestError, match="not an empty folder"):
        run(ranks, tmp_path / "run", "ddp2", checkpoint__export=tmp_path / "there")
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def tokenizer_of(ids: int, path: Path) -> Path:
    """A Hugging Face tokenizer with so many ids."""
    vocab = {f"w{i}": i for i in range(ids)}
    model = {"type": "WordLevel", "vocab": vocab, "unk_token": "w0"}
    path.write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": model}))
    return path


def truncated_store(folder: Path) -> Path:
    """Tokens that an earlier run has stored, with the end missing."""
    from meshwright.train.data.config import DataConfig
    from meshwright.train.data.dataset import open_dataset

    (folder / "text.txt").write_text("some words " * 500)
    open_dataset(DataConfig(source=str(folder / "text.txt"), cache_dir=str(folder / "cache"), seq_len=32), vocab=264)
    tokens = next((folder / "cache").glob("*/tokens.bin"))
    tokens.write_bytes(tokens.read_bytes()[:-7])
    return tokens


END = ("--data.end_token", "w1")


def schedule_file(path: Path, micro_batches: int) -> Path:
    path.write_text(format_table(table("1f1b", 2, micro_batches)))
    return path


def deadlock(path: Path) -> Path:
    path.write_text("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n")
    return path


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda d: ["--layout", "fsdp3"], "3"),
        (lambda d: ["--layout", "tp3"], "3"),
        (lambda d: ["--layout", "pp2:dualpipev mbs4"], "micro-batch"),
        (lambda d: ["--layout", "ddp2", "--data.tokenizer", tokenizer_of(300, d / "t.json"), *END], "300"),
        (lambda d: ["--layout", "ddp2", "--data.source", truncated_store(d)], "tokens.bin"),
        (lambda d: ["--layout", "pp2:1f1b", "--parallel.schedule_csv", schedule_file(d / "s.csv", 4)], "micro-batches"),
        (lambda d: ["--layout", "ddp2", "--parallel.schedule_csv", schedule_file(d / "s.csv", 8)], "is for pipelines"),
        (lambda d: ["--layout", "pp2:1f1b mbs4", "--parallel.schedule_csv", deadlock(d / "s.csv")], "deadlock"),
    ],
)
def test_a_wrong_request_starts_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], make: Any, told: str
) -> None:
    monkeypatch.setattr("meshwright.train.launch.local.launch_local", lambda *_, **__: pytest.fail("ranks started"))
    monkeypatch.chdir(tmp_path)
    arguments: Sequence[Any] = make(tmp_path)
    source = [] if "--data.source" in arguments or "--data.tokenizer" in arguments else ["--data.source", "synthetic"]
    if "--data.tokenizer" in arguments:
        (tmp_path / "words.txt").write_text("w1 w2 " * 500)
        source = ["--data.source", "words.txt"]
    common = ["--model", NANO, "--train.seq_len", "32", "--train.global_batch", "8", "--run", "run"]
    assert main(["train", *common, *source, *map(str, arguments)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("error: ") == 1
    assert told in err
    assert "Traceback" not in err
    assert not (tmp_path / "run" / "checkpoints").exists()
