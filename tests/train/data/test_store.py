"""Stored tokens: built once by one process, whole or not at all, and refused when they are damaged."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from meshwright.train.data import DataConfig, DataError, Loader, Progress, batch_hash, build, open_dataset
from meshwright.train.data.sources import find_files
from meshwright.train.data.store import TokenStore
from meshwright.train.data.tokenizer import ByteTokenizer

from .corpora import dataset, write_lines


def corpus(tmp_path: Path, lines: int = 3000) -> Path:
    """Three files of many short documents, some with prompts."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name in "abc":
        records = [
            {"prompt": f"{name}{i}?", "completion": f"{i * i}"} if i % 7 == 3 else {"text": f"{name} {i}"}
            for i in range(lines)
        ]
        write_lines(folder / f"{name}.jsonl", *records)
    return folder


def stored(tmp_path: Path) -> Path:
    """The one folder of tokens in the cache."""
    (folder,) = (path for path in (tmp_path / "cache").iterdir() if path.is_dir())
    return folder


def test_tokens_are_made_once_and_anew_when_a_file_changes(tmp_path: Path) -> None:
    source = corpus(tmp_path, 30)
    told: list[Progress] = []
    config = DataConfig(source=str(source), cache_dir=str(tmp_path / "cache"), seq_len=8)
    first = open_dataset(config, vocab=257, progress=told.append)
    assert told[-1].bytes_done == told[-1].bytes_total == sum(path.stat().st_size for path in source.iterdir())
    assert told[-1].documents == 90
    assert [report.bytes_done for report in told] == sorted(report.bytes_done for report in told)
    count = len(told)
    again = open_dataset(config, vocab=257, progress=told.append)
    assert len(told) == count
    assert again.identity == first.identity
    write_lines(source / "c.jsonl", {"text": "x" * 1000})
    assert len(open_dataset(config, vocab=257, progress=told.append)) != len(first)
    assert len(told) > count


class CrashError(Exception):
    """A process that dies."""


class Failing(ByteTokenizer):
    """Dies at its n-th batch; counts what it was given."""

    def __init__(self, batches: int) -> None:
        self.left, self.texts = batches, 0

    def encode(self, texts: Any) -> Any:
        """As bytes, a limited number of times."""
        self.left -= 1
        if self.left < 0:
            raise CrashError
        self.texts += len(texts)
        return super().encode(texts)


@pytest.mark.parametrize("batches", [0, 1, 4, 6])
def test_a_crash_leaves_nothing_half_used_and_the_next_build_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: int
) -> None:
    monkeypatch.setattr(build, "JOURNAL_SECONDS", 0.0)
    source = corpus(tmp_path)
    files = find_files((str(source),))
    whole = build.tokenized(files, ByteTokenizer(), "text", tmp_path / "whole", None)
    with pytest.raises(CrashError):
        build.tokenized(files, Failing(batches), "text", tmp_path / "cache", None)
    assert [path.suffix for path in (tmp_path / "cache").iterdir() if path.is_dir()] == [".partial"]
    partial = stored(tmp_path)
    with open(partial / "tokens.bin", "ab") as file:
        file.write(b"half a batch")  # written after the journal
    second = Failing(1000)
    resumed = build.tokenized(files, second, "text", tmp_path / "cache", None)
    assert resumed.identity == whole.identity
    pieces = 3 * (3000 + 429)  # 429 of 3,000 are a prompt and a completion
    assert second.texts == pieces - sum([1024, 1024, 1024, 357, 1024, 1024][:batches])


def test_a_damaged_journal_means_from_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "JOURNAL_SECONDS", 0.0)
    files = find_files((str(corpus(tmp_path)),))
    whole = build.tokenized(files, ByteTokenizer(), "text", tmp_path / "whole", None)
    for damage in ("journal", "tokens"):
        with pytest.raises(CrashError):
            build.tokenized(files, Failing(2), "text", tmp_path / damage, None)
        (partial,) = (path for path in (tmp_path / damage).iterdir() if path.is_dir())
        if damage == "journal":
            (partial / "journal.json").write_text('{"key": ')
        else:
            os.truncate(partial / "tokens.bin", 10)
        again = Failing(1000)
        assert build.tokenized(files, again, "text", tmp_path / damage, None).identity == whole.identity
        assert again.texts == 3 * 3429


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    source = corpus(tmp_path)
    files = find_files((str(source),))

    def change(_: Progress) -> None:
        with open(source / "a.jsonl", "a") as file:
            file.write('{"text": "more"}\n')

    with pytest.raises(DataError, match="corpus: a file was written to while it was read"):
        build.tokenized(files, ByteTokenizer(), "text", tmp_path / "cache", change)
    assert not [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]


def _open_together(start: Any, config: DataConfig, answers: Any) -> None:
    reports: list[Progress] = []
    start.wait()
    data = open_dataset(config, vocab=257, progress=reports.append)
    answers.put((data.identity, any(not report.waiting for report in reports)))


def test_processes_that_start_together_build_once(tmp_path: Path) -> None:
    config = DataConfig(source=str(corpus(tmp_path)), cache_dir=str(tmp_path / "cache"), seq_len=8)
    context = multiprocessing.get_context("fork")
    start, answers = context.Barrier(3), context.Queue()
    processes = [context.Process(target=_open_together, args=(start, config, answers)) for _ in range(3)]
    for process in processes:
        process.start()
    given = [answers.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert len({identity for identity, _ in given}) == 1
    assert sorted(built for _, built in given) == [False, False, True]


def test_who_waits_for_a_builder_is_told_so_and_takes_what_it_made(tmp_path: Path) -> None:
    files = find_files((str(corpus(tmp_path, 30)),))
    key = build.build_key(files, ByteTokenizer(), "text")
    folder = tmp_path / "cache" / f"corpus-{key[:16]}"
    whole = build.tokenized(files, ByteTokenizer(), "text", tmp_path / "whole", None)
    folder.parent.mkdir()
    lock = FileLock(f"{folder}.lock")
    lock.acquire()
    told: list[Progress] = []

    def finish(report: Progress) -> None:
        told.append(report)
        if lock.is_locked:
            shutil.copytree(whole.folder, folder)
            lock.release()

    store = build.tokenized(files, Failing(0), "text", tmp_path / "cache", finish)
    assert store.identity == whole.identity
    assert {report.waiting for report in told} == {True}


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("tokens.bin", lambda b: b[:-1], r"tokens\.bin has \d+ bytes, not the \d+ that header\.json says.*Delete"),
        ("tokens.bin", lambda b: b + b"\0\0", r"tokens\.bin has"),
        ("offsets.bin", lambda b: b[:8], r"offsets\.bin has"),
        ("skipped.bin", lambda b: None, r"skipped\.bin is missing"),
        ("tokens.bin", lambda b: b[:50] + bytes([b[50] ^ 1]) + b[51:], r"tokens\.bin: its bytes are not those written"),
        ("header.json", lambda b: b[:40], r"header\.json: not readable"),
        ("header.json", lambda b: b"[]", r"header\.json: not a header"),
        ("header.json", lambda b: b.replace(b'"version": 1', b'"version": 9'), r"version 9 .* reads version 1"),
        ("header.json", lambda b: b.replace(b'"documents"', b'"papers"'), r"header\.json: damaged"),
        ("header.json", lambda b: b.replace(b'"<u2"', b'"|O"'), r"header\.json: damaged \(impossible numbers\)"),
        ("header.json", lambda b: None, r"no header\.json"),
    ],
)
def test_damaged_tokens_are_refused(tmp_path: Path, name: str, damage: Any, message: str) -> None:
    source = corpus(tmp_path, 30)
    dataset(tmp_path, source, seq_len=8)
    path = stored(tmp_path) / name
    content = damage(path.read_bytes())
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        dataset(tmp_path, source, seq_len=8)


def test_tokens_too_large_to_verify_at_every_start_are_checked_as_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("meshwright.train.data.store.VERIFIED_BYTES", 0)
    source = corpus(tmp_path, 30)
    dataset(tmp_path, source, seq_len=8)
    path = stored(tmp_path) / "tokens.bin"
    content = path.read_bytes()
    path.write_bytes(content[:9] + b"\x7f" + content[10:])
    data = dataset(tmp_path, source, seq_len=8)
    with pytest.raises(DataError, match=r"tokens\.bin, tokens 0 to 9: id \d+, and bytes has ids up to 256"):
        data.sample(0)
    with pytest.raises(DataError, match="its bytes are not those written"):
        TokenStore(stored(tmp_path)).verify()


def test_stored_tokens_are_a_source(tmp_path: Path) -> None:
    data = dataset(tmp_path, corpus(tmp_path, 30), seq_len=8)
    expected = batch_hash(Loader(data, 4, prefetch=0).batches(1))
    folder = stored(tmp_path).rename(tmp_path / "moved")
    for source in (folder, folder / "tokens.bin"):
        copy = dataset(tmp_path, source, seq_len=8)
        assert batch_hash(Loader(copy, 4, prefetch=0).batches(1)) == expected
        assert copy.identity == data.identity
    with pytest.raises(DataError, match="vocabulary of 257; the model's is 200"):
        dataset(tmp_path, folder, vocab=200, seq_len=8)
    with pytest.raises(DataError, match="do not mix with other sources"):
        open_dataset(DataConfig(source=(str(folder), "stdlib"), seq_len=8), vocab=257)
    table = json.loads((folder / "header.json").read_text())
    table["tokenizer"] = {"name": "gpt2", "size": 50257, "end": 50256, "fingerprint": "x"}
    (folder / "header.json").write_text(json.dumps(table))
    assert dataset(tmp_path, folder, vocab=50257, seq_len=8).sample(0).tokens.tolist() == data.sample(0).tokens.tolist()


def test_a_full_or_forbidden_cache_is_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = corpus(tmp_path, 30)
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(DataError, match=r"cache: File exists\. Legal: data\.cache_dir at another place"):
        dataset(tmp_path, source, seq_len=8)
    (tmp_path / "cache").unlink()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("meshwright.train.data.writer.os.fsync", full)
    with pytest.raises(DataError, match=r"No space left on device"):
        dataset(tmp_path, source, seq_len=8)
    monkeypatch.undo()
    dataset(tmp_path, source, seq_len=8)


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    monkeypatch.delenv("MESHWRIGHT_CACHE", raising=False)
    assert DataConfig().cache == Path("/x/meshwright")
    monkeypatch.setenv("MESHWRIGHT_CACHE", "/y")
    assert DataConfig().cache == Path("/y")
    assert DataConfig(cache_dir="/z").cache == Path("/z")
