"""Build: text files tokenized once into a folder of the cache, by one process, going on after a crash."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from meshwright.train.data.errors import DataError
from meshwright.train.data.readers import read_pieces
from meshwright.train.data.records import Piece
from meshwright.train.data.sources import Files
from meshwright.train.data.store import FORMAT, VERSION, TokenStore
from meshwright.train.data.tokenizer import Tokenizer
from meshwright.train.data.writer import TokenWriter, check_ids

BATCH_BYTES = 4 * 2**20
"""Text handed to the tokenizer at once."""
BATCH_PIECES = 1024
JOURNAL_SECONDS = 20.0
"""A crash loses at most the work of this time."""


@dataclass(frozen=True)
class Progress:
    """How far tokenizing is."""

    bytes_done: int
    bytes_total: int
    documents: int
    tokens: int
    waiting: bool = False
    """Another process does it."""


Report = Callable[[Progress], None]


def build_key(files: Files, tokenizer: Tokenizer, text_key: str) -> str:
    """The key of a tokenized data set: files, tokenizer, text key and format."""
    words = [FORMAT, VERSION, files.fingerprint(), tokenizer.facts.fingerprint, text_key]
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()


def tokenized(files: Files, tokenizer: Tokenizer, text_key: str, cache: Path, report: Report | None) -> TokenStore:
    """The stored tokens of `files`, made if they are not in `cache`.

    One process makes them under a lock, the others wait for it. A folder gets its final name when it is complete.
    Raises DataError for damaged text and for a cache that cannot be written.
    """
    key = build_key(files, tokenizer, text_key)
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", files.name)[:40]
    folder = cache / f"{name}-{key[:16]}"
    if not folder.exists():
        try:
            cache.mkdir(parents=True, exist_ok=True)
            with _locked(cache / f"{folder.name}.lock", report):
                if not folder.exists():
                    _Build(files, tokenizer, text_key, key, report).run(folder)
        except OSError as error:
            raise DataError(
                f"{error.filename or folder}: {error.strerror or error}.", ["data.cache_dir at another place"]
            ) from None
    return TokenStore(folder)


@contextmanager
def _locked(path: Path, report: Report | None) -> Iterator[None]:
    """One process at a time; the system frees the lock when its holder dies."""
    lock = FileLock(path)
    while True:
        try:
            lock.acquire(timeout=1.0, poll_interval=0.05)
            break
        except Timeout:
            if report:
                report(Progress(0, 0, 0, 0, waiting=True))
    try:
        yield
    finally:
        lock.release()


class _Build:
    """One data set being tokenized."""

    def __init__(self, files: Files, tokenizer: Tokenizer, text_key: str, key: str, report: Report | None) -> None:
        self.files, self.tokenizer, self.text_key, self.key, self.report = files, tokenizer, text_key, key, report
        self.total = files.bytes
        self.saved = time.monotonic()

    def run(self, folder: Path) -> None:
        """Tokenize into FOLDER.partial, or go on where an interrupted build stopped, then rename it."""
        partial = folder.with_name(folder.name + ".partial")
        try:
            with TokenWriter(partial, self.key, self.tokenizer.facts) as writer:
                self._write(writer)
                self._check(writer)
                writer.finish(self.files.name, self.files.left_out, folder)
        except DataError:
            # What was read of damaged files is of no use once they are mended: the key is another one then.
            shutil.rmtree(partial, ignore_errors=True)
            raise

    def _write(self, writer: TokenWriter) -> None:
        state, before = writer.state, 0
        for index, path in enumerate(self.files.paths):
            if index > state.file:
                state.file, state.pieces = index, 0
            if index == state.file:
                pieces = read_pieces(path, self.text_key, raw=self.tokenizer.takes_bytes)
                for batch in _batches(islice(pieces, state.pieces, None)):
                    self._add(writer, batch)
                    state.pieces += len(batch)
                    self._tell(writer, before + batch[-1].read)
            before += path.stat().st_size

    def _add(self, writer: TokenWriter, batch: list[Piece]) -> None:
        """Tokenize and write a batch of pieces."""
        texts = [piece.content for piece in batch if not isinstance(piece.content, np.ndarray)]
        encoded = iter(self.tokenizer.encode(texts))
        for piece in batch:
            if isinstance(piece.content, np.ndarray):
                check_ids(piece.content, self.tokenizer.facts.size, piece.where)
                writer.add(piece.content, piece.skipped)
            else:
                writer.add(next(encoded), piece.skipped)
            if piece.ends:
                writer.end_document()
        writer.flush()

    def _tell(self, writer: TokenWriter, done: int) -> None:
        if time.monotonic() - self.saved >= JOURNAL_SECONDS:
            writer.save_journal()
            self.saved = time.monotonic()
        if self.report:
            self.report(Progress(done, self.total, writer.state.documents, writer.state.tokens))

    def _check(self, writer: TokenWriter) -> None:
        if build_key(self.files, self.tokenizer, self.text_key) != self.key:
            raise DataError(f"data.source {self.files.name}: a file was written to while it was read.")
        if not writer.state.documents:
            raise DataError(f"data.source {self.files.name}: no text in {len(self.files.paths)} files.")


def _batches(pieces: Iterator[Piece]) -> Iterator[list[Piece]]:
    """Pieces gathered to a size that pays for a call of the tokenizer."""
    batch: list[Piece] = []
    size = 0
    for piece in pieces:
        batch.append(piece)
        size += len(piece.content)
        if size >= BATCH_BYTES or len(batch) >= BATCH_PIECES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
