"""Every file below a path, and every file in an archive (zip, tar, gzip, bzip2, xz), told by content.

Archives come from a cluster: members are read where they lie and never written to disk, and what unpacks to more than
`LARGEST` is refused.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

HEAD = 1 << 16
"""Bytes that tell what a file is."""
DEEPEST = 3
"""Archives in archives."""
LARGEST = 64 * 2**30
"""Bytes that one packed file may unpack to."""
BROKEN = (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile, RuntimeError,
          NotImplementedError, ValueError)  # fmt: skip
"""What reading a damaged archive raises (RuntimeError: a password is needed)."""
_PACKED: dict[bytes, Callable[[BinaryIO], Any]] = {
    b"\x1f\x8b": lambda stream: gzip.GzipFile(fileobj=stream),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
}


@dataclass(frozen=True, slots=True)
class Source:
    """One file, open. It is closed when the next one is asked for."""

    path: str
    """Members of an archive as `run.tar.gz!logs/rank_0.log`."""
    stream: BinaryIO | None
    head: bytes
    modified: float
    """Seconds since the epoch."""
    size: int
    """Bytes as it lies there, packed or not."""
    problem: str = ""
    """Why it could not be opened."""


def sources(
    path: Path, seen: set[tuple[int, int]] | None = None, on_read: Callable[[int], None] = lambda size: None
) -> Iterator[Source]:
    """The files below `path` in the order of their names, but none that was `seen` (device, inode), as by a link."""
    seen = set() if seen is None else seen
    for file in _files(path):
        try:
            about = file.stat()
            if (about.st_dev, about.st_ino) in seen:
                continue
            seen.add((about.st_dev, about.st_ino))
            stream = io.BufferedReader(_Counted(file, on_read), HEAD)
        except OSError as error:
            yield Source(str(file), None, b"", 0.0, 0, error.strerror or "cannot be opened")
            continue
        with stream:
            yield from _opened(str(file), stream, about.st_mtime, about.st_size, 0)


def sizes(path: Path) -> Iterator[tuple[str, int]]:
    """The files below `path` in the order of `sources`, and the bytes of each."""
    for file in _files(path):
        with suppress(OSError):
            yield str(file), file.stat().st_size


def _files(path: Path) -> Iterator[Path]:
    """Files, and folders that cannot be listed: opening one of those tells why."""
    if path.is_dir():
        closed: list[Path] = []
        found = [
            Path(folder, name)
            for folder, _, names in os.walk(path, onerror=lambda error: closed.append(Path(error.filename)))
            for name in names
        ]
        # A link comes after the file that it may lead to.
        yield from (file for file in sorted(found, key=lambda one: (one.is_symlink(), one)) if file.is_file())
        yield from closed
    else:
        yield path


def _opened(path: str, stream: IO[bytes], modified: float, size: int, depth: int) -> Iterator[Source]:
    """The file, or what is packed in it."""
    buffered = io.BufferedReader(cast("io.RawIOBase", stream), HEAD)
    plain = cast("BinaryIO", buffered)
    try:
        head = buffered.peek(HEAD)[:HEAD]
        packed = next((opener for magic, opener in _PACKED.items() if head.startswith(magic)), None)
        is_tar = head[257:262] == b"ustar"
        if depth < DEEPEST and packed is not None:
            inner = cast("IO[bytes]", _Limited(packed(plain)))
            yield from _opened(path, inner, modified, size, depth + 1)
        elif depth < DEEPEST and is_tar:
            yield from _tar(path, plain, depth)
        elif depth < DEEPEST and head.startswith(b"PK\x03\x04") and not _is_torch_archive(head):
            yield from _zip(path, plain, modified, depth)
        else:
            yield Source(path, plain, head, modified, size)
    except BROKEN as error:
        yield Source(path, None, b"", modified, size, f"it is damaged ({str(error)[:120] or type(error).__name__})")


def _tar(path: str, stream: BinaryIO, depth: int) -> Iterator[Source]:
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None:
                yield from _opened(
                    f"{path}!{member.name}", cast("IO[bytes]", _Plain(content)), member.mtime, member.size, depth + 1
                )


def _zip(path: str, stream: BinaryIO, modified: float, depth: int) -> Iterator[Source]:
    if not stream.seekable():
        yield Source(path, None, b"", modified, 0, "a zip in a packed archive is not read: unpack it")
        return
    with zipfile.ZipFile(cast("IO[bytes]", stream)) as archive:
        for member in archive.infolist():
            if not member.is_dir():
                with archive.open(member) as content:
                    inner = cast("IO[bytes]", _Limited(content))
                    yield from _opened(f"{path}!{member.filename}", inner, modified, member.file_size, depth + 1)


def _is_torch_archive(head: bytes) -> bool:
    """What torch.save writes is a zip too, and no archive of a job's files."""
    return b"/data.pkl" in head[:4096] or b"/.format_version" in head[:4096]


class _Counted(io.FileIO):
    """A file that tells how many bytes are read from it."""

    def __init__(self, path: Path, on_read: Callable[[int], None]) -> None:
        super().__init__(path)
        self._on_read = on_read

    def readinto(self, buffer: Any) -> int | None:
        size = super().readinto(buffer)
        self._on_read(size or 0)
        return size


class _Plain(io.RawIOBase):
    """A stream that is only read forward."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        """Fills the buffer. What a broken archive still gives comes first, and its error with the next call."""
        filled = 0
        read = getattr(self._stream, "read1", self._stream.read)
        while filled < len(buffer):
            try:
                data = read(len(buffer) - filled)
            except BROKEN:
                if not filled:
                    raise
                break
            if not data:
                break
            buffer[filled : filled + len(data)] = data
            filled += len(data)
        return filled


class _Limited(_Plain):
    """… and raises ValueError after `LARGEST` bytes: an archive made to fill a machine."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(stream)
        self._left = LARGEST

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        read = super().readinto(buffer)
        self._left -= read
        if self._left < 0:
            raise ValueError(f"it unpacks to more than {LARGEST // 2**30} GiB")
        return read
