"""Records: one JSON object or Parquet row as pieces of a document, with which tokens are targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from meshwright.train.data.errors import DataError

FIELDS = ("prompt", "completion", "tokens", "loss_mask")
"""What a record may hold beside the text."""


@dataclass(frozen=True)
class Piece:
    """Part of a document, in order; tokenized apart from its neighbours."""

    content: str | bytes | np.ndarray
    """Text, or token ids [n]."""
    skipped: bool | np.ndarray = False
    """Tokens that the loss does not count as targets: all, none, or [n] bools."""
    ends: bool = True
    """The document ends after this piece."""
    where: str = ""
    """File and line, for messages."""
    read: int = 0
    """Bytes of the file read so far."""


def record_pieces(record: Any, text_key: str, where: str, read: int = 0) -> list[Piece]:
    """The pieces of a record: its text, else its prompt and completion, else its tokens. Raises DataError."""
    if not isinstance(record, dict):
        raise DataError(f"{where}: {type(record).__name__}, not an object with a key {text_key!r}.")
    if text_key in record:
        if "loss_mask" in record:
            raise DataError(f"{where}: a loss_mask counts tokens, so it needs tokens, not {text_key!r}.")
        return [Piece(_string(record, text_key, where), where=where, read=read)]
    if "prompt" in record and "completion" in record:
        prompt, completion = (_string(record, key, where) for key in ("prompt", "completion"))
        return [
            Piece(prompt, skipped=True, ends=False, where=where, read=read),
            Piece(completion, where=where, read=read),
        ]
    if "tokens" in record:
        ids = _integers(record, "tokens", where)
        skipped: bool | np.ndarray = False
        if "loss_mask" in record:
            mask = _integers(record, "loss_mask", where)
            if len(mask) != len(ids) or not np.isin(mask, (0, 1)).all():
                raise DataError(f"{where}: loss_mask must be {len(ids)} zeros and ones, one a token.")
            skipped = mask == 0
        return [Piece(ids, skipped=skipped, where=where, read=read)]
    keys = ", ".join(list(record)[:8]) or "none"
    raise DataError(
        f"{where}: no key {text_key!r} (keys: {keys}).", ["data.text_key", "prompt and completion", "tokens"]
    )


def _string(record: dict[str, Any], key: str, where: str) -> str:
    text = record[key]
    if not isinstance(text, str):
        raise DataError(f"{where}: {key!r} is {type(text).__name__}, not a string.")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise DataError(f"{where}: {key!r} holds half a surrogate pair, which is no Unicode text.") from None
    return text


def _integers(record: dict[str, Any], key: str, where: str) -> np.ndarray:
    values = record[key]
    if not isinstance(values, list) or not all(isinstance(v, int) for v in values):
        raise DataError(f"{where}: {key!r} must be a list of integers.")
    try:
        return np.array(values, dtype=np.int64)
    except OverflowError:
        raise DataError(f"{where}: {key!r} holds an integer beyond 64 bits.") from None
