"""tiktoken encodings: by name (fetched or cached by the library), or around the ranks of a local file."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

from meshwright.train.data.errors import DataError
from meshwright.train.data.tokenizer import TokenizerFacts

BY_RANKS = {50256: "gpt2", 50280: "p50k_base", 100256: "cl100k_base", 199998: "o200k_base"}
"""Which encoding a rank file of so many lines belongs to."""


class RankTokenizer:
    """An encoding of tiktoken; special tokens inside a text are encoded as ordinary text."""

    takes_bytes = False

    def __init__(self, name: str, encoding: Any, end_token: str = "") -> None:
        self._encoding = encoding
        ends = encoding._special_tokens
        end_token = end_token or "<|endoftext|>"
        if end_token not in ends:
            raise DataError(f"{name} has no token {end_token!r} to end a document.", sorted(ends))
        # The ranks, the pattern and the end of a document are all that the ids depend on.
        digest = hashlib.sha256(repr(encoding._pat_str).encode())
        for token, rank in sorted(encoding._mergeable_ranks.items(), key=lambda pair: pair[1]):
            digest.update(token + rank.to_bytes(8, "little"))
        end = int(ends[end_token])
        self.facts = TokenizerFacts(name, int(encoding.max_token_value) + 1, end, f"{digest.hexdigest()}:{end}")

    @classmethod
    def named(cls, name: str, end_token: str = "") -> RankTokenizer:
        """`tiktoken:NAME`, `tiktoken:NAME:FILE`, or a FILE whose number of ranks says which encoding it is of."""
        try:
            tiktoken: Any = import_module("tiktoken")
        except ImportError:
            raise DataError(f"data.tokenizer {name}: needs tiktoken (pip install tiktoken).") from None
        encoding_name, _, file = name.removeprefix("tiktoken:").partition(":")
        if not name.startswith("tiktoken:"):
            encoding_name, file = "", name
        if file:
            return cls(name, _from_file(tiktoken, encoding_name, Path(file).expanduser()), end_token)
        if encoding_name not in tiktoken.list_encoding_names():
            raise DataError(f"tiktoken has no encoding {encoding_name!r}.", tiktoken.list_encoding_names())
        try:
            return cls(name, tiktoken.get_encoding(encoding_name), end_token)
        except (OSError, ValueError) as error:
            raise DataError(
                f"tiktoken could not fetch {encoding_name} ({str(error).splitlines()[0][:120]}).",
                [f"tiktoken:{encoding_name}:FILE with a local rank file", "TIKTOKEN_CACHE_DIR"],
            ) from None

    def encode(self, texts: Sequence[str | bytes]) -> list[np.ndarray]:
        """Ids of each text; the library's threads share the work."""
        return [np.array(ids, dtype=np.int64) for ids in self._encoding.encode_ordinary_batch(list(texts))]


def _from_file(tiktoken: Any, name: str, path: Path) -> Any:
    """The encoding `name` with the ranks of `path`; where it has other ranks, the end of a document follows them."""
    ranks = read_ranks(path)
    guess = BY_RANKS.get(len(ranks))
    if not name and guess is None:
        raise DataError(
            f"{path} has {len(ranks)} ranks, as no known encoding; say whose way of splitting words it goes with.",
            [f"tiktoken:{n}:{path}" for n in BY_RANKS.values()],
        )
    name = name or str(guess)
    if name not in BY_RANKS.values():
        raise DataError(f"tiktoken:{name}:FILE: the encoding cannot be one of a file.", list(BY_RANKS.values()))
    facts = _constructor(name, ranks)()
    if len(ranks) != {n: count for count, n in BY_RANKS.items()}[name]:
        facts["special_tokens"] = {"<|endoftext|>": max(ranks.values()) + 1}
        facts["explicit_n_vocab"] = None
    return tiktoken.Encoding(**facts)


def _constructor(name: str, ranks: dict[bytes, int]) -> FunctionType:
    """The library's own definition of `name` (pattern, special tokens), given `ranks` instead of fetching them."""
    public: Any = import_module("tiktoken_ext.openai_public")

    def given(*_: object, **__: object) -> dict[bytes, int]:
        return ranks

    made = public.ENCODING_CONSTRUCTORS[name]
    names = {**made.__globals__, "load_tiktoken_bpe": given, "data_gym_to_mergeable_bpe_ranks": given}
    return FunctionType(made.__code__, names)


def read_ranks(path: Path) -> dict[bytes, int]:
    """A rank file: a token in base64 and its rank on each line. Raises DataError with the line."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}.") from None
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error):
            raise DataError(f"{path}, line {number}: not a token in base64 and its rank.") from None
    if len(set(ranks.values())) < len(ranks) or any(bytes([b]) not in ranks for b in range(256)):
        raise DataError(
            f"{path}: the ranks are not those of a byte-pair encoding (a byte is missing, or a rank twice)."
        )
    return ranks
