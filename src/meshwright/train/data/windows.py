"""Windows: a token stream cut in samples. Window i is tokens [i·S, i·S + S], so that each token is a target once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from meshwright.train.data.errors import DataError
from meshwright.train.data.store import TOKENS, TokenStore


@dataclass(frozen=True)
class Window:
    """seq_len + 1 consecutive tokens; all arrays are [seq_len + 1]."""

    tokens: np.ndarray
    """int64 ids."""
    documents: np.ndarray | None = None
    """int64, the document of each token, from 0 in each window; None where nobody asked."""
    skipped: np.ndarray | None = None
    """bool, tokens that are no targets; None: all are."""


class Windows(Protocol):
    """Where samples come from."""

    def __len__(self) -> int:
        """Number of windows."""

    def window(self, index: int) -> Window:
        """The window at `index`."""

    @property
    def identity(self) -> str:
        """Equal for equal windows."""

    @property
    def skips(self) -> bool:
        """Some tokens are no targets."""

    def describe(self) -> str:
        """Documents and tokens in words."""


class StoredWindows:
    """The windows of stored tokens. Tokens at the end that fill no window are never read."""

    def __init__(self, store: TokenStore, seq_len: int, documents: bool) -> None:
        self.store, self.seq_len, self._documents = store, seq_len, documents
        if store.header.tokens <= seq_len:
            raise DataError(
                f"data.source {store.header.name}: {store.header.tokens} tokens are fewer than one sample, "
                f"which takes data.seq_len + 1 = {seq_len + 1}.",
                [f"data.seq_len up to {store.header.tokens - 1}" if store.header.tokens > 1 else "more text"],
            )

    def __len__(self) -> int:
        return (self.store.header.tokens - 1) // self.seq_len

    def window(self, index: int) -> Window:
        """The window at `index`. Raises DataError for an id that the tokenizer does not have."""
        start = index * self.seq_len
        end = start + self.seq_len + 1
        tokens = self.store.tokens[start:end].astype(np.int64)
        facts = self.store.header.tokenizer
        if tokens.max() >= facts.size:
            raise DataError(
                f"{self.store.folder / TOKENS}, tokens {start} to {end}: id {tokens.max()}, and {facts.name} has ids "
                f"up to {facts.size - 1}; the file is damaged."
            )
        documents = self._documents_of(start, end) if self._documents else None
        skipped = None if self.store.skipped is None else self.store.skipped[start:end].astype(bool)
        return Window(tokens, documents, skipped)

    def _documents_of(self, start: int, end: int) -> np.ndarray:
        offsets = self.store.offsets
        first = int(np.searchsorted(offsets, start, "right"))
        last = int(np.searchsorted(offsets, end, "left"))
        return np.searchsorted(offsets[first:last], np.arange(start, end), "right").astype(np.int64)

    @property
    def identity(self) -> str:
        """Digest of the token stream."""
        return self.store.identity

    @property
    def skips(self) -> bool:
        """Some tokens are no targets."""
        return self.store.skipped is not None

    def describe(self) -> str:
        """Documents, tokens and tokenizer in words, with what was left out."""
        header = self.store.header
        text = f"{header.name}: {header.documents:,} documents"
        left_out = []
        if header.empty_documents:
            left_out.append(f"{header.empty_documents:,} empty")
        if header.files_left_out:
            left_out.append(f"{header.files_left_out:,} files of other kinds left out")
        text += f" ({', '.join(left_out)})" if left_out else ""
        text += f", {header.tokens:,} tokens ({header.tokenizer.name}, {header.tokenizer.size:,} ids)"
        if header.skipped_tokens:
            text += f", {header.skipped_tokens:,} of them no targets"
        return text
