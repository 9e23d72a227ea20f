"""Sources: the words of `data.source` as a sorted list of files."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from meshwright.train.data.errors import DataError

SUFFIXES = (".txt", ".txt.gz", ".jsonl", ".jsonl.gz", ".json.gz", ".parquet")
NO_TEXT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
"""Folders of the standard library that not every machine has, or whose files are made to be odd."""


@dataclass(frozen=True)
class Files:
    """Files in the order in which they are read."""

    name: str
    """For people and for the cache folder."""
    paths: tuple[Path, ...]
    labels: tuple[str, ...]
    """What stands for a path in the fingerprint."""
    left_out: int = 0
    """Files found in folders whose suffix says that they hold no text."""

    @property
    def bytes(self) -> int:
        """Bytes on disk."""
        return sum(path.stat().st_size for path in self.paths)

    def fingerprint(self) -> str:
        """Changes when a file is added, removed, or written to (name, size, time)."""
        rows = []
        for label, path in zip(self.labels, self.paths, strict=True):
            facts = path.stat()
            rows.append([label, facts.st_size, facts.st_mtime_ns])
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def find_files(sources: tuple[str, ...]) -> Files:
    """The files of `sources`; each word's in sorted order. Raises DataError for a word that names none."""
    if sources == ("stdlib",):
        return _standard_library()
    paths: list[Path] = []
    left_out = 0
    for source in sources:
        found, others = _expand(source)
        paths += found
        left_out += others
    resolved = [path.resolve() for path in paths]
    if len(set(resolved)) < len(resolved):
        twice = next(path for i, path in enumerate(resolved) if path in resolved[:i])
        raise DataError(f"data.source names {twice} more than once.")
    return Files(_name(sources), tuple(paths), tuple(str(path) for path in resolved), left_out)


def _name(sources: tuple[str, ...]) -> str:
    first = Path(sources[0])
    return (first.name.split(".")[0].strip("*?[]") or first.parent.name or "text") if len(sources) == 1 else "text"


def _expand(source: str) -> tuple[list[Path], int]:
    """Files of one word, and how many in its folder were left out."""
    if source in ("stdlib", "synthetic") or source.startswith("synthetic:"):
        raise DataError(f"data.source {source!r} does not mix with others.")
    if "://" in source:
        raise DataError(f"data.source {source!r} is no local file; download it first.", [*SUFFIXES, "a folder"])
    path = Path(source).expanduser()
    if path.is_dir():
        every = sorted(p for p in path.rglob("*") if p.is_file() and not p.name.startswith("."))
        chosen = [p for p in every if p.name.lower().endswith(SUFFIXES)]
        if not chosen:
            raise DataError(f"{path} holds no text file ({len(every)} others).", SUFFIXES)
        return chosen, len(every) - len(chosen)
    matches = [path] if path.is_file() else sorted(Path(p) for p in glob.glob(str(path), recursive=True))
    files = [p for p in matches if p.is_file()]
    if not files:
        raise DataError(f"data.source {source!r}: no such file.", ["stdlib", "synthetic", "a path, folder or glob"])
    for file in files:
        if not file.name.lower().endswith(SUFFIXES):
            raise DataError(f"{file}: no known kind of text file.", SUFFIXES)
    return files, 0


def _standard_library() -> Files:
    """The interpreter's own .py files, sorted by name; without tests and without what pip installed."""
    root = Path(sysconfig.get_path("stdlib"))
    names = []
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in NO_TEXT and not name.startswith(".")]
        relative = Path(folder).relative_to(root)
        # _sysconfigdata is written by each build of Python.
        names += [
            (relative / file).as_posix() for file in files if file.endswith(".py") and not file.startswith("_sysconfig")
        ]
    if not names:
        raise DataError(
            f"data.source stdlib: {root} holds no .py file (a zipped Python?).", ["synthetic:chain", "a path"]
        )
    names.sort()
    return Files("stdlib", tuple(root / name for name in names), tuple(names))
