"""Tokenizers: bytes, a Hugging Face tokenizer file, tiktoken; all as text in, arrays of ids out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from meshwright.train.data.errors import DataError

END_NAMES = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|im_end|>", "[SEP]", "<|end|>")
"""Ends of document by name, where a tokenizer file does not say which it is."""


@dataclass(frozen=True)
class TokenizerFacts:
    """What stored tokens know of the tokenizer that made them."""

    name: str
    size: int
    """Highest id + 1."""
    end: int
    """Id of the end of a document."""
    fingerprint: str
    """Two tokenizers with the same fingerprint give the same ids."""


class Tokenizer(Protocol):
    """Text to ids."""

    @property
    def facts(self) -> TokenizerFacts:
        """Name, size, end of document, fingerprint."""

    @property
    def takes_bytes(self) -> bool:
        """Text files need not be decoded."""

    def encode(self, texts: Sequence[str | bytes]) -> list[np.ndarray]:
        """Ids of each text, without any special token added."""


class ByteTokenizer:
    """UTF-8 bytes are ids 0 to 255; 256 ends a document."""

    facts = TokenizerFacts("bytes", 257, 256, "bytes")
    takes_bytes = True

    def encode(self, texts: Sequence[str | bytes]) -> list[np.ndarray]:
        """Ids [bytes] of each text."""
        return [np.frombuffer(t if isinstance(t, bytes) else t.encode(), dtype=np.uint8) for t in texts]


class FileTokenizer:
    """A Hugging Face tokenizer.json, read by the tokenizers library (which executes nothing)."""

    takes_bytes = False

    def __init__(self, path: Path, end_token: str = "") -> None:
        try:
            library: Any = import_module("tokenizers")
        except ImportError:
            raise DataError(f"{path}: reading it needs tokenizers (pip install tokenizers).") from None
        path = path / "tokenizer.json" if path.is_dir() else path
        try:
            text = path.read_text(encoding="utf-8")
            self._library = library.Tokenizer.from_str(text)
        except Exception as error:  # the library raises plain Exception
            raise DataError(f"{path}: no readable tokenizer file ({str(error).splitlines()[0]}).") from None
        # A file may carry the truncation of its model; data are cut by us alone.
        self._library.no_truncation()
        self._library.no_padding()
        vocabulary: dict[str, int] = self._library.get_vocab(with_added_tokens=True)
        if not vocabulary:
            raise DataError(f"{path}: a tokenizer without a vocabulary.")
        end = vocabulary[_end_name(path, vocabulary, end_token)]
        digest = hashlib.sha256(text.encode()).hexdigest()
        self.facts = TokenizerFacts(str(path), max(vocabulary.values()) + 1, end, f"{digest}:{end}")

    def encode(self, texts: Sequence[str | bytes]) -> list[np.ndarray]:
        """Ids of each text; the library's threads share the work."""
        encodings = self._library.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.int64) for encoding in encodings]


def _end_name(path: Path, vocabulary: dict[str, int], wanted: str) -> str:
    """The end of a document: as asked, as the file beside says, or the one well-known name there is."""
    if wanted:
        if wanted not in vocabulary:
            raise DataError(f"{path} has no token {wanted!r} to end a document.", _ends_in(vocabulary))
        return wanted
    beside = path.with_name("tokenizer_config.json")
    if beside.is_file():
        try:
            told: Any = json.loads(beside.read_text(encoding="utf-8")).get("eos_token")
        except (OSError, ValueError, AttributeError) as error:
            raise DataError(f"{beside}: no readable tokenizer configuration ({error}).") from None
        told = told.get("content") if isinstance(told, dict) else told
        if told in vocabulary:
            return str(told)
    names = _ends_in(vocabulary)
    if not names:
        raise DataError(f"{path}: no token is known to end a document.", ["data.end_token names one of its tokens"])
    return names[0]


def _ends_in(vocabulary: dict[str, int]) -> list[str]:
    return [name for name in END_NAMES if name in vocabulary]


def open_tokenizer(name: str, end_token: str = "") -> Tokenizer:
    """The tokenizer that `data.tokenizer` names. Raises DataError."""
    if name.startswith("tiktoken:") or name.endswith((".tiktoken", ".bpe")):
        from meshwright.train.data.tiktoken_files import RankTokenizer

        return RankTokenizer.named(name, end_token)
    if name == "bytes":
        if end_token:
            raise DataError("data.end_token: bytes end a document with id 256 and have no names.")
        return ByteTokenizer()
    path = Path(name).expanduser()
    if not path.exists():
        legal = ["bytes", "a tokenizer.json or its folder", "tiktoken:NAME", "tiktoken:NAME:FILE"]
        raise DataError(f"data.tokenizer {name!r}: no such file.", legal)
    return FileTokenizer(path, end_token)


def check_vocabulary(tokenizer: TokenizerFacts | Tokenizer, vocab: int) -> None:
    """Raises DataError when the tokenizer has ids that a model of `vocab` ids has no embedding for."""
    facts = tokenizer if isinstance(tokenizer, TokenizerFacts) else tokenizer.facts
    if facts.size > vocab:
        raise DataError(
            f"Tokenizer {facts.name} has ids up to {facts.size - 1}, which needs a vocabulary of {facts.size}; "
            f"the model's is {vocab}.",
            [f"a model with vocabulary {facts.size} or more", "another data.tokenizer"],
        )
