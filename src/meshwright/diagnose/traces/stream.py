"""A trace read in pieces: batches of whole events from a file that may be larger than the memory, damaged or cut off.

Kineto writes one JSON object with a list `traceEvents` (pytorch/kineto, output_json.cpp); Chrome's format also allows
the bare list. Texts in it may hold control characters (pytorch#130622), and a job that dies leaves the list open.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from meshwright.diagnose.sources.walk import BROKEN
from meshwright.diagnose.traces.events import TraceError

BATCH = 2 << 20
"""Bytes of events that are parsed at once: large enough for the parser, small enough for the memory."""
PIECE = 1 << 16
"""Bytes read at once: so many may be lost where a packed file breaks off."""
LARGEST_HEADER = 64 << 20
LARGEST_TAIL = 8 << 20
LARGEST_EVENT = 64 << 20
"""Bytes of one event. A file without a boundary for so long is no trace."""
_LIST = re.compile(rb'"traceEvents"\s*:\s*\[')
_FIRST_KEY = re.compile(rb'\s*\{\s*("[^"\\]{1,40}")')
_DECODER = json.JSONDecoder(strict=False)
_SPACE = re.compile(r"[\s,]*")
_KEYS = ("distributedInfo", "baseTimeNanoseconds", "deviceProperties", "with_stack", "record_shapes")


def looks_like_trace(head: bytes) -> bool:
    """Whether the first bytes of a file are a trace's."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text[:1] == b"{":
        kineto = b'"schemaVersion"' in text and b'"deviceProperties"' in text
        return b'"traceEvents"' in text or kineto or (b'"distributedInfo"' in text and b'"pg_config"' in text)
    return text[:1] == b"[" and b'"ph"' in text[:2000] and b'"ts"' in text[:4000]


class TraceStream:
    """The events of a file. Once `batches` is through, `about` and `problem` are complete."""

    def __init__(self, stream: BinaryIO) -> None:
        self.about: dict[str, Any] = {}
        """What stands beside the list of events."""
        self.skipped = 0
        """Stretches that are no JSON and were left out."""
        self.cut = ""
        """Why the end is missing; "" where the list of events is closed."""
        self._stream = stream
        self._closed = False

    def batches(self) -> Iterator[list[Any]]:
        """Lists of events. Raises TraceError: there is no list of events."""
        buffer = self._header()
        boundary = None
        while True:
            more = self._more(BATCH)
            buffer += more
            if self._closed:
                buffer = buffer[:LARGEST_TAIL]
                if not more:
                    break
                continue
            if not more:
                yield self._last(buffer)
                buffer = b""
                break
            boundary = boundary or _boundary(buffer)
            end = _last_boundary(buffer, boundary) if boundary else None
            if end is None or boundary is None:
                if len(buffer) > LARGEST_EVENT:
                    raise TraceError(f"one event of it is larger than {LARGEST_EVENT >> 20} MiB")
                continue
            events, rest = self._parsed(buffer[:end], boundary)
            buffer = rest + buffer[end:] if self._closed else buffer[end:]
            yield events
        self._tail(buffer)

    @property
    def problem(self) -> str:
        """What was wrong with the file, in words; "" where nothing was."""
        broken = f"{self.skipped} stretches of it are no JSON and were left out" if self.skipped else ""
        return "; ".join(one for one in (self.cut, broken) if one)

    def _more(self, size: int) -> bytes:
        """The next bytes; a packed file that breaks off ends there."""
        parts: list[bytes] = []
        read = getattr(self._stream, "read1", self._stream.read)
        while size > 0 and not self.cut:
            try:
                data = read(min(size, PIECE))
            except BROKEN as error:
                self.cut = f"it breaks off ({str(error)[:80] or type(error).__name__})"
                break
            if not data:
                break
            parts.append(data)
            size -= len(data)
        return b"".join(parts)

    def _header(self) -> bytes:
        """Reads up to the list of events; returns what follows its bracket."""
        buffer = self._more(1 << 16)
        text = buffer.lstrip(b"\xef\xbb\xbf \t\r\n")
        if text[:1] == b"[":
            return text[1:]
        while (found := _LIST.search(buffer)) is None:
            more = self._more(BATCH)
            if not more or len(buffer) > LARGEST_HEADER:
                raise TraceError("it has no list of traceEvents" + (f": {self.cut}" if self.cut else ""))
            buffer += more
        self._learn(buffer[: found.start()] + b'"_": 0}')
        return buffer[found.end() :]

    def _tail(self, rest: bytes) -> None:
        rest = rest.strip().lstrip(b",").strip()
        if rest and rest != b"}":
            self._learn(b"{" + rest)

    def _learn(self, document: bytes) -> None:
        try:
            found = json.loads(document.decode("utf-8", "replace"), strict=False)
        except (ValueError, RecursionError):
            found = _pieces(document)
        if isinstance(found, dict):
            self.about |= {key: found[key] for key in _KEYS if key in found}

    def _parsed(self, data: bytes, boundary: re.Pattern[bytes]) -> tuple[list[Any], bytes]:
        """The events in a batch that ends at a boundary, and what follows the list, where it ends in the batch."""
        text = data.decode("utf-8", "replace")
        try:
            return json.loads(f"[{text.strip().strip(',')}]", strict=False), b""
        except (ValueError, RecursionError):
            return self._one_by_one(text, boundary.pattern.decode())

    def _last(self, data: bytes) -> list[Any]:
        boundary = _boundary(data)
        events, rest = self._one_by_one(data.decode("utf-8", "replace"), boundary.pattern.decode() if boundary else "")
        if self._closed:
            self._tail(rest)
        else:
            self.cut = self.cut or "the list of events is not closed: its writer stopped in the middle"
        return events

    def _one_by_one(self, text: str, boundary: str) -> tuple[list[Any], bytes]:
        """The same, slowly: what is broken is left out."""
        events: list[Any] = []
        position = 0
        while True:
            space = _SPACE.match(text, position)
            position = space.end() if space else position
            if position >= len(text):
                return events, b""
            if text[position] == "]":
                self._closed = True
                return events, text[position + 1 :].encode()
            try:
                event, position = _DECODER.raw_decode(text, position)
                events.append(event)
            except (ValueError, RecursionError):
                following = re.compile(boundary).search(text, position) if boundary else None
                if following is None:
                    return events, b""
                self.skipped += 1
                position = following.start() + 1


def _pieces(document: bytes) -> dict[str, Any]:
    """The values of a header that is broken as a whole, those that can be read."""
    text = document.decode("utf-8", "replace")
    found: dict[str, Any] = {}
    for key in _KEYS:
        place = re.search(rf'"{key}"\s*:\s*', text)
        if place is not None:
            try:
                found[key] = _DECODER.raw_decode(text, place.end())[0]
            except (ValueError, RecursionError):
                continue
    return found


def _boundary(data: bytes) -> re.Pattern[bytes] | None:
    """Where one event ends and the next begins: all begin with the same key."""
    found = _FIRST_KEY.match(data.lstrip(b" \t\r\n,"))
    return re.compile(rb"\}\s*,\s*\{\s*" + re.escape(found[1])) if found else None


def _last_boundary(data: bytes, boundary: re.Pattern[bytes]) -> int | None:
    """The position behind the last whole event that is known to be one."""
    window = 1 << 15
    while True:
        found = [one.start() + 1 for one in boundary.finditer(data, max(0, len(data) - window))]
        if found:
            return found[-1]
        if window > len(data):
            return None
        window *= 8


def plain_about(about: Mapping[str, Any]) -> tuple[int | None, int | None, dict[str, tuple[str, tuple[int, ...]]]]:
    """Rank, world size and groups (description and ranks by name) that `distributedInfo` tells; None: it does not."""
    info = about.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    listed = info.get("pg_config")
    groups = {
        str(one.get("pg_name")): (str(one.get("pg_desc")), _whole_numbers(one.get("ranks")))
        for one in (listed if isinstance(listed, list) else [])
        if isinstance(one, dict)
    }
    return _count(info.get("rank")), _count(info.get("world_size")), groups


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else None


def _whole_numbers(value: Any) -> tuple[int, ...]:
    return tuple(one for one in value if isinstance(one, int)) if isinstance(value, list) else ()
