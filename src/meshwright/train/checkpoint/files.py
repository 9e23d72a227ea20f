"""Files: written with their checksum taken on the way, and on the disk before anybody is told so."""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemWriter
from torch.distributed.checkpoint.metadata import StorageMeta

BLOCK = 1 << 22
"""Bytes read at a time for a checksum."""


@dataclass(frozen=True)
class FileFacts:
    """What tells a whole file from a truncated or altered one."""

    size: int
    crc32: int


class CheckedStream(io.RawIOBase):
    """A file being written that counts and sums its bytes.

    An error of the disk is kept and raised by `finish`, since `torch.save` must not be interrupted in a write: what
    follows the error is dropped.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.error: OSError | None = None
        self._file = path.open("wb")
        self._size = 0
        self._crc32 = 0

    def write(self, data: object, /) -> int:
        """Write all of `data`, a buffer."""
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        self._size += view.nbytes
        if self.error is None:
            self._crc32 = zlib.crc32(view, self._crc32)
            try:
                self._file.write(view)
            except OSError as error:
                self.error = error
        return view.nbytes

    def writable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """Bytes so far."""
        return self._size

    def flush(self) -> None:
        """Nothing: `finish` flushes, once."""

    def finish(self) -> FileFacts:
        """Put everything on the disk. Raises the first OSError there was."""
        try:
            if self.error is None:
                self._file.flush()
                os.fsync(self._file.fileno())
        except OSError as error:
            self.error = error
        try:
            self._file.close()
        except OSError as error:
            self.error = self.error or error
        if self.error is not None:
            raise OSError(self.error.errno, self.error.strerror, str(self.path)) from self.error
        return FileFacts(self._size, self._crc32)


class CheckedFiles(FileSystem):
    """DCP's file system, noting the facts of every file that it writes."""

    def __init__(self) -> None:
        self.facts: dict[str, FileFacts] = {}

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Generator[io.IOBase, None, None]:
        """A stream whose bytes are on the disk when the context ends."""
        if mode != "wb":
            with super().create_stream(path, mode) as stream:
                yield stream
            return
        checked = CheckedStream(Path(path))
        yield checked
        self.facts[checked.path.name] = checked.finish()

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        """Rename a file and its facts."""
        super().rename(path, new_path)
        self.facts[Path(new_path).name] = self.facts.pop(Path(path).name)


class CheckedWriter(FileSystemWriter):
    """DCP's writer on `CheckedFiles`: one file a rank, beside `.metadata` by rank 0."""

    def __init__(self, path: Path) -> None:
        # No copy-ahead: it would open a CUDA context of the wrong device in a background thread.
        super().__init__(path, sync_files=False, thread_count=1, per_thread_copy_ahead=0)
        self.files = CheckedFiles()
        self.fs = self.files

    def storage_meta(self) -> StorageMeta:
        """Without the path, which is a temporary one."""
        return StorageMeta(save_id=self.save_id)


def write_file(path: Path, data: bytes) -> FileFacts:
    """Write a small file and see it onto the disk."""
    stream = CheckedStream(path)
    stream.write(data)
    return stream.finish()


def sync_directory(path: Path) -> None:
    """See a directory's names onto the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checksum(path: Path) -> int:
    """The CRC-32 of a file, read once."""
    crc32 = 0
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            crc32 = zlib.crc32(block, crc32)
    return crc32
