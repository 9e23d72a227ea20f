"""Inputs: what lies in the files that a person points at, told by their content and not by their names."""

from __future__ import annotations

import gc
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from meshwright.diagnose.facts import Facts, Input
from meshwright.diagnose.logs.read import UNKNOWN, looks_like_text, read_log
from meshwright.diagnose.sources.walk import BROKEN, Source, sizes, sources
from meshwright.diagnose.topic import Topic
from meshwright.diagnose.unpickle import is_pickle, load_plain
from meshwright.spec.errors import RequestError

SMALL = 4096
"""Bytes of a configuration whose text belongs to what a person describes."""
Progress = Callable[[int, int], None]
"""Takes what is done and the whole, in bytes."""
LARGEST = 512 * 2**20
"""Bytes of a pickle or a JSON that is read whole."""


def read_inputs(paths: Sequence[Path], topics: Sequence[Topic], progress: Progress = lambda done, total: None) -> Facts:
    """Reads every file below `paths`; `progress` is told bytes. Raises RequestError: a path that is not there."""
    facts = Facts()
    for path in paths:
        if not path.exists():
            raise RequestError(f"There is no {path}.")
    files = [file for path in paths for file in sizes(path)]
    total, done = sum(size for _, size in files), 0

    def on_read(size: int) -> None:
        nonlocal done
        done += size
        progress(min(done, total), total)

    seen: set[tuple[int, int]] = set()
    with _uncollected(), ExitStack() as stack:
        small = [(path, size) for path, size in files if size <= LARGEST]
        ahead = [stack.enter_context(topic.ahead(small)) for topic in topics if topic.ahead is not None]
        for source in (one for path in paths for one in sources(path, seen, on_read)):
            ready = next((found for take in ahead if (found := take(source.path)) is not None), None)
            if ready is not None:
                on_read(source.size - len(source.head))
            facts.inputs.append(_read(source, ready, topics, facts))
    return facts


@contextmanager
def _uncollected() -> Iterator[None]:
    """What is read stays, so that looking for garbage in it is lost time: a third of the whole for pickles."""
    wanted = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if wanted:
            gc.enable()


def _read(source: Source, ready: Any, topics: Sequence[Topic], facts: Facts) -> Input:
    """`ready`: what was parsed ahead."""
    if source.stream is None:
        return Input(source.path, UNKNOWN, problem=source.problem)
    try:
        for stream in (one for topic in topics for one in topic.streams):
            if stream.looks_like(source.head):
                return Input(source.path, stream.kind, stream.read(source.stream, source.path, facts))
        if (parsed := ready if ready is not None else _parsed(source)) is not None:
            return _document(parsed, source, topics, facts)
        if looks_like_text(source.head):
            return read_log(source.stream, source.path, source.head, source.modified, topics, facts)
    except RequestError as error:
        return Input(source.path, UNKNOWN, problem=str(error))
    except BROKEN as error:
        return Input(source.path, UNKNOWN, problem=f"it is damaged ({str(error)[:120] or type(error).__name__})")
    return Input(source.path, UNKNOWN, problem="not recognised" if source.head else "empty")


def _document(parsed: Any, source: Source, topics: Sequence[Topic], facts: Facts) -> Input:
    """A document is given to every topic that knows it: a model's configuration tells of memory and of divisibility."""
    if isinstance(parsed, Mapping) and source.size <= SMALL and not is_pickle(source.head):
        facts.settings.append(settings_text(parsed))
    fitting = [one for topic in topics for one in topic.documents if one.looks_like(parsed)]
    ranks = [one.read(parsed, source.path, facts) for one in fitting]
    if not fitting:
        return Input(source.path, UNKNOWN, problem="not recognised")
    return Input(source.path, fitting[0].kind, next((rank for rank in ranks if rank is not None), None))


def settings_text(parsed: Mapping[str, Any]) -> str:
    """A small configuration as words beside what a person describes."""
    return " ".join(f"{key}: {value}" for key, value in parsed.items())


def _parsed(source: Source) -> Any:
    """A pickle, a JSON or a TOML that is read whole; None: it is none of them."""
    assert source.stream is not None
    head = source.head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if is_pickle(source.head):
        return load_plain(_whole(source))
    if head[:1] in (b"{", b"[") and not _is_lines(head):
        # A log may begin with a bracket: it is read again as text.
        if not source.stream.seekable() and not _starts_json(head):
            return None
        data = _whole(source)
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            if source.stream.seekable() and not _starts_json(head):
                source.stream.seek(0)
                return None
            raise RequestError(f"broken JSON: {str(error)[:120]}") from error
    if source.path.endswith(".toml"):
        try:
            return tomllib.loads(_whole(source).decode())
        except (ValueError, RecursionError) as error:
            raise RequestError(f"broken TOML: {str(error)[:120]}") from error
    return None


def _whole(source: Source) -> bytes:
    assert source.stream is not None
    data = source.stream.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise RequestError(f"larger than {LARGEST // 2**20} MiB, so not read")
    return data


def _starts_json(head: bytes) -> bool:
    """`{` and then a key, `[` and then a value: no log's line begins so."""
    rest = head[1:].lstrip()
    return (head[:1] == b"{" and rest[:1] in b'"}') or (head[:1] == b"[" and rest[:1] in b'{["]')


def _is_lines(head: bytes) -> bool:
    """Whether every line is a JSON of its own (`metrics.jsonl`): such a file is read as a log."""
    first, newline, rest = head.partition(b"\n")
    if not newline or rest.lstrip()[:1] != b"{":
        return False
    try:
        json.loads(first)
    except ValueError:
        return False
    return True
