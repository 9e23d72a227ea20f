"""Readers: a text, JSON-lines or Parquet file as a stream of pieces, in bounded memory."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from meshwright.train.data.errors import DataError
from meshwright.train.data.records import FIELDS, Piece, record_pieces

PIECE_BYTES = 2**20
"""Text files are read and tokenized in pieces of this size, cut after a line break; no token spans a cut."""
ROWS = 256
"""Parquet rows in memory at once."""


def read_pieces(path: Path, text_key: str, *, raw: bool) -> Iterator[Piece]:
    """The documents of one file. A text file is one document, a JSON line or a Parquet row one each.

    `raw`: text files give bytes, not decoded. Raises DataError with file and line where the file is damaged.
    """
    name = path.name.lower()
    if name.endswith(".parquet"):
        yield from _parquet(path, text_key)
        return
    lines = name.endswith((".jsonl", ".jsonl.gz", ".json.gz"))
    with open(path, "rb") as file:
        stream: BinaryIO = io.BufferedReader(gzip.GzipFile(fileobj=file)) if name.endswith(".gz") else file
        yield from _json_lines(path, stream, file, text_key) if lines else _text(path, stream, file, raw)


class _Place:
    """Where a stream is; turns what gzip raises into a DataError that says so."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.line = 0

    def __enter__(self) -> _Place:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, EOFError | zlib.error | gzip.BadGzipFile):
            raise DataError(
                f"{self.path}, after line {self.line}: the compressed data are damaged or cut ({error})."
            ) from None


def _text(path: Path, stream: BinaryIO, file: BinaryIO, raw: bool) -> Iterator[Piece]:
    with _Place(path) as place:
        for block in _blocks(stream):
            content: str | bytes = block
            if not raw:
                try:
                    content = block.decode("utf-8")
                except UnicodeDecodeError as error:
                    line = place.line + block.count(b"\n", 0, error.start) + 1
                    raise DataError(
                        f"{path}, line {line}: no UTF-8 ({error.reason}, byte 0x{block[error.start]:02x})."
                    ) from None
            yield Piece(content, ends=False, read=file.tell())
            place.line += block.count(b"\n")
        yield Piece(b"" if raw else "", read=file.tell())


def _blocks(stream: BinaryIO) -> Iterator[bytes]:
    """Blocks cut after a line break, or between two characters where a block has none."""
    rest = b""
    while block := stream.read(PIECE_BYTES):
        block = rest + block
        cut = block.rfind(b"\n") + 1 or _character_border(block)
        yield block[:cut]
        rest = block[cut:]
    if rest:
        yield rest


def _character_border(block: bytes) -> int:
    """Start of the last UTF-8 character, which may be incomplete."""
    for back in range(1, min(4, len(block)) + 1):
        if block[-back] & 0xC0 != 0x80:
            return len(block) - back or len(block)
    return len(block)


def _json_lines(path: Path, stream: BinaryIO, file: BinaryIO, text_key: str) -> Iterator[Piece]:
    with _Place(path) as place:
        for line in stream:
            place.line += 1
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                cut = " The file ends inside a record; it may be truncated." if not line.endswith(b"\n") else ""
                raise DataError(f"{path}, line {place.line}: no JSON ({error}).{cut}") from None
            yield from record_pieces(record, text_key, f"{path}, line {place.line}", file.tell())


def _parquet(path: Path, text_key: str) -> Iterator[Piece]:
    try:
        arrow: Any = import_module("pyarrow")
        parquet: Any = import_module("pyarrow.parquet")
    except ImportError:
        raise DataError(f"{path}: reading Parquet needs pyarrow (pip install pyarrow).") from None
    row, size = 0, path.stat().st_size
    try:
        with parquet.ParquetFile(path) as table:
            names = table.schema_arrow.names
            columns = [name for name in dict.fromkeys((text_key, *FIELDS)) if name in names]
            if not columns:
                raise DataError(f"{path} has no column {text_key!r}.", names)
            total = max(table.metadata.num_rows, 1)
            for batch in table.iter_batches(batch_size=ROWS, columns=columns):
                for record in batch.to_pylist():
                    row += 1
                    # An absent optional value is a null column here and an absent key in JSON.
                    present = {key: value for key, value in record.items() if value is not None}
                    yield from record_pieces(present, text_key, f"{path}, row {row}", size * row // total)
    except (arrow.ArrowException, OSError) as error:
        raise DataError(f"{path}, after row {row}: no readable Parquet ({str(error).splitlines()[0]}).") from None
