"""Writer: token ids appended to the files of a store, with a journal from which a crashed build goes on."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from meshwright.train.data.errors import DataError
from meshwright.train.data.store import HEADER, OFFSETS, SKIPPED, TOKENS, Header, file_digest
from meshwright.train.data.tokenizer import TokenizerFacts

JOURNAL = "journal.json"


@dataclass
class State:
    """What has been written."""

    file: int = 0
    """Index of the file being read."""
    pieces: int = 0
    """Its pieces that are written."""
    tokens: int = 0
    documents: int = 0
    empty_documents: int = 0
    skipped_tokens: int = 0
    open_tokens: int = 0
    """Tokens of the document that has not ended yet."""
    last_skipped: bool = False
    """Its last token is no target; then its end of document is none either."""


class TokenWriter:
    """Appends documents to `folder`; opens a folder that a crash left with the same key where its journal stands."""

    def __init__(self, folder: Path, key: str, tokenizer: TokenizerFacts) -> None:
        self.folder, self.key, self.tokenizer = folder, key, tokenizer
        self.dtype = np.dtype("<u2" if tokenizer.size <= 2**16 else "<u4")
        self.state = self._resumed() or self._fresh()
        self._end = np.array([tokenizer.end])
        self._ids: list[np.ndarray] = []
        self._marks: list[bool | np.ndarray] = []
        self._ends: list[int] = []
        self._open = ExitStack()
        self._files: dict[str, BinaryIO] = {}
        for name, size in self._sizes().items():
            self._append_to(name, size)

    def __enter__(self) -> TokenWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def add(self, ids: np.ndarray, skipped: bool | np.ndarray) -> None:
        """Append tokens to the open document; `skipped` marks those the loss does not count."""
        if not len(ids):
            return
        self._ids.append(ids)
        self._marks.append(skipped)
        self.state.tokens += len(ids)
        self.state.open_tokens += len(ids)
        self.state.last_skipped = bool(skipped if isinstance(skipped, bool) else skipped[-1])

    def end_document(self) -> None:
        """End the open document; one without a token is left out and counted."""
        state = self.state
        if not state.open_tokens:
            state.empty_documents += 1
            return
        self.add(self._end, state.last_skipped)
        self._ends.append(state.tokens)
        state.documents += 1
        state.open_tokens = 0

    def flush(self) -> None:
        """Write what was added; call it often enough that it fits in memory."""
        if self._ids:
            self._write_marks()
            self._files[TOKENS].write(np.concatenate(self._ids).astype(self.dtype).tobytes())
            self._files[OFFSETS].write(np.array(self._ends, dtype="<i8").tobytes())
            self._ids, self._marks, self._ends = [], [], []

    def save_journal(self) -> None:
        """Everything added so far survives a crash from here on."""
        self.flush()
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
        write_atomically(self.folder / JOURNAL, json.dumps({"key": self.key, **asdict(self.state)}))

    def finish(self, name: str, files_left_out: int, final: Path) -> None:
        """Write the header and give the folder its final name."""
        self.save_journal()
        digests = {file: file_digest(self.folder / file) for file in self._files}
        state = self.state
        header = Header(
            name=name,
            fingerprint=self.key,
            tokenizer=self.tokenizer,
            dtype=self.dtype.str,
            tokens=state.tokens,
            documents=state.documents,
            empty_documents=state.empty_documents,
            skipped_tokens=state.skipped_tokens,
            digests=digests,
            files_left_out=files_left_out,
        )
        write_atomically(self.folder / HEADER, header.to_json())
        (self.folder / JOURNAL).unlink()
        os.replace(self.folder, final)

    def _write_marks(self) -> None:
        """Append to skipped.bin, which exists from the first skipped token on."""
        if SKIPPED not in self._files:
            if not any(marks is True or (isinstance(marks, np.ndarray) and marks.any()) for marks in self._marks):
                return
            (self.folder / SKIPPED).write_bytes(b"")
            self._append_to(SKIPPED, self.state.tokens - sum(len(ids) for ids in self._ids))
        pairs = zip(self._marks, self._ids, strict=True)
        marks = np.concatenate([np.broadcast_to(np.uint8(marks), len(ids)) for marks, ids in pairs])
        self._files[SKIPPED].write(marks.tobytes())
        self.state.skipped_tokens += int(marks.sum())

    def _append_to(self, name: str, size: int) -> None:
        """Open a file for what comes after its first `size` bytes; zeros where it is shorter."""
        file = self._open.enter_context(open(self.folder / name, "r+b"))  # noqa: SIM115 (closed by __exit__)
        file.truncate(size)
        file.seek(size)
        self._files[name] = file

    def _sizes(self) -> dict[str, int]:
        """Bytes by file, as the state has it."""
        state = self.state
        sizes = {TOKENS: state.tokens * self.dtype.itemsize, OFFSETS: 8 * (state.documents + 1)}
        return {**sizes, SKIPPED: state.tokens} if state.skipped_tokens else sizes

    def _resumed(self) -> State | None:
        """The state in the journal, where the files are at least as long as it says."""
        try:
            table = json.loads((self.folder / JOURNAL).read_text(encoding="utf-8"))
            if table.pop("key") != self.key:
                return None
            self.state = State(**table)
            whole = all((self.folder / name).stat().st_size >= size for name, size in self._sizes().items())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return self.state if whole else None

    def _fresh(self) -> State:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        (self.folder / TOKENS).touch()
        (self.folder / OFFSETS).write_bytes(bytes(8))
        return State()


def write_atomically(path: Path, text: str) -> None:
    """The file is the old one or the new one, never half of one."""
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def check_ids(ids: np.ndarray, size: int, where: str) -> None:
    """Raises DataError when ids given as such are none of the tokenizer's."""
    if len(ids) and (ids.min() < 0 or ids.max() >= size):
        wrong = ids.min() if ids.min() < 0 else ids.max()
        raise DataError(f"{where}: token id {wrong}; the tokenizer has ids 0 to {size - 1}.")
