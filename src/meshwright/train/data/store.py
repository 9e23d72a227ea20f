"""Stored tokens: a folder of memory-mapped files that a stream of documents was tokenized into.

header.json   what the others hold: counts, dtype, tokenizer, digests; written last
tokens.bin    token ids, uint16 where the tokenizer's all fit, else uint32, little-endian
offsets.bin   int64 [documents + 1]: where each document starts; its end of document belongs to it
skipped.bin   uint8 [tokens], only where some tokens are no targets: 1 = the loss skips it
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from meshwright.train.data.errors import DataError
from meshwright.train.data.tokenizer import TokenizerFacts

FORMAT = "meshwright tokens"
VERSION = 1
HEADER, TOKENS, OFFSETS, SKIPPED = "header.json", "tokens.bin", "offsets.bin", "skipped.bin"
VERIFIED_BYTES = 2**28
"""Files up to this size are compared with their digests whenever they are opened (a fraction of a second)."""


@dataclass(frozen=True)
class Header:
    """What a folder of tokens holds."""

    name: str
    fingerprint: str
    """Of files, tokenizer and format; the key in the cache."""
    tokenizer: TokenizerFacts
    dtype: str
    tokens: int
    documents: int
    empty_documents: int
    """Documents without a token, left out."""
    skipped_tokens: int
    digests: dict[str, str]
    """SHA-256 by file."""
    files_left_out: int = 0

    def to_json(self) -> str:
        """The text of header.json."""
        return json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)}, indent=1)

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes by file."""
        sizes = {TOKENS: self.tokens * np.dtype(self.dtype).itemsize, OFFSETS: 8 * (self.documents + 1)}
        return {**sizes, SKIPPED: self.tokens} if self.skipped_tokens else sizes


def read_header(folder: Path) -> Header:
    """The header of `folder`. Raises DataError when there is none or it is not one of ours."""
    path = folder / HEADER
    try:
        table: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{folder}: no {HEADER}, so these are no tokens of ours.") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not readable ({error}). {_remedy(folder)}") from None
    if not isinstance(table, dict) or table.pop("format", None) != FORMAT:
        raise DataError(f"{path}: not a header of {FORMAT!r}.")
    if (version := table.pop("version", None)) != VERSION:
        raise DataError(f"{path}: version {version} of the format; this release reads version {VERSION}.")
    try:
        table["tokenizer"] = TokenizerFacts(**table["tokenizer"])
        header = Header(**table)
        if header.dtype not in ("<u2", "<u4") or min(header.tokens, header.documents) < 1:
            raise ValueError("impossible numbers")
        if set(header.sizes) != set(header.digests):
            raise ValueError("digests of other files")
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: damaged ({error}). {_remedy(folder)}") from None
    return header


class TokenStore:
    """The memory-mapped tokens of a folder. Raises DataError where a file is not what the header says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.header = read_header(folder)
        for name, size in self.header.sizes.items():
            path = folder / name
            have = path.stat().st_size if path.is_file() else -1
            if have != size:
                found = "is missing" if have < 0 else f"has {have} bytes, not the {size} that {HEADER} says"
                raise DataError(f"{path} {found}. {_remedy(folder)}")
        if sum(self.header.sizes.values()) <= VERIFIED_BYTES:
            self.verify()
        self.tokens = _mapped(folder / TOKENS, self.header.dtype)
        """[tokens]"""
        self.offsets = _mapped(folder / OFFSETS, "<i8")
        """[documents + 1]"""
        self.skipped = _mapped(folder / SKIPPED, "u1") if self.header.skipped_tokens else None
        """[tokens] or None"""
        if self.offsets[0] != 0 or self.offsets[-1] != self.header.tokens:
            raise DataError(f"{folder / OFFSETS}: the documents do not cover the tokens. {_remedy(folder)}")

    def verify(self) -> None:
        """Compare every file with its digest (reads them whole). Raises DataError."""
        for name, digest in self.header.digests.items():
            if file_digest(self.folder / name) != digest:
                raise DataError(f"{self.folder / name}: its bytes are not those written. {_remedy(self.folder)}")

    @property
    def identity(self) -> str:
        """Equal for equal token streams, wherever and whenever they were made."""
        return hashlib.sha256(json.dumps(sorted(self.header.digests.items())).encode()).hexdigest()


def _mapped(path: Path, dtype: str) -> np.ndarray:
    """The numbers of a file, read where they are used. A plain array: slices of np.memmap cost ten times as much."""
    return np.asarray(np.memmap(path, dtype=dtype, mode="r"))


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _remedy(folder: Path) -> str:
    return f"Delete the folder {folder} to tokenize again."
