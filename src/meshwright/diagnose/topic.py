"""Topic: one subject of a diagnosis: what it reads from files and lines, and its rules, from facts to Findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, BinaryIO

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import Finding
from meshwright.diagnose.logs.line import Line


@dataclass(frozen=True, slots=True)
class Document:
    """A kind of JSON, YAML, TOML or pickle that is read whole."""

    kind: str
    """As `inputs` calls it."""
    looks_like: Callable[[Any], bool]
    read: Callable[[Any, str, Facts], int | None]
    """Takes what was parsed and its path; the rank whose it is, if any. Raises RequestError: it is broken."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A kind of file that is read piece by piece, as it may be larger than the memory."""

    kind: str
    looks_like: Callable[[bytes], bool]
    """Takes the first 64 KiB."""
    read: Callable[[BinaryIO, str, Facts], int | None]
    """Takes the file from its first byte, and its path; as `Document.read`."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One subject. A rule is a pure function from facts to Findings."""

    name: str
    rules: tuple[Callable[[Facts], Iterable[Finding]], ...] = ()
    checked: Callable[[Facts], Iterable[str]] = lambda facts: ()
    """What was looked at, in words; nothing where no such facts were there."""
    missing: Callable[[Facts], Iterable[str]] = lambda facts: ()
    """What would have told more."""
    documents: tuple[Document, ...] = ()
    streams: tuple[Stream, ...] = ()
    ahead: Callable[[Sequence[tuple[str, int]]], AbstractContextManager[Callable[[str], Any]]] | None = None
    """Takes all files (paths and bytes) and gives, as long as it is entered, what other processes read in one of them:
    something that a document of the topic knows, or None."""
    last_resort: bool = False
    """Its rules come after those of the other topics, and know what these have found (`Facts.causes`)."""
    trigger: str = ""
    """A regular expression: lines of logs in which it is not found are not given to `collect`. "": all are."""
    of_programs: bool = False
    """Its lines are taken from scripts and programs too. In them an error's text is what may be said, not what was."""
    collect: Callable[[Line, Facts], str] | None = None
    """Takes a line of a log that the trigger is found in; says what kind of file such a line makes of it, or ""."""
