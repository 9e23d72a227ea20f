"""Small data sets whose samples can be written down by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from meshwright.train.data import DataConfig, Dataset, open_dataset


def write_lines(path: Path, *records: Any) -> Path:
    """A JSON-lines file."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def dataset(tmp_path: Path, source: Path | str, vocab: int = 300, **options: Any) -> Dataset:
    """The data set of a source, with its cache beside it."""
    return open_dataset(DataConfig(source=str(source), cache_dir=str(tmp_path / "cache"), **options), vocab=vocab)


def letters(tmp_path: Path, count: int, seq_len: int = 4, **options: Any) -> Dataset:
    """One document of `count` samples of 4 tokens, every sample another one."""
    path = tmp_path / "letters.txt"
    path.write_text("".join(f"{i:04d}" for i in range(count)))
    return dataset(tmp_path, path, seq_len=seq_len, **options)
