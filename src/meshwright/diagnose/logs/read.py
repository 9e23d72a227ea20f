"""A log, read line by line in bounded memory: each topic is given the lines that it asks for."""

from __future__ import annotations

import codecs
import io
import re
import time
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from meshwright.diagnose.facts import Facts, Input
from meshwright.diagnose.logs.line import Line, line_of, rank_in_path
from meshwright.diagnose.topic import Topic

CHUNK = 1 << 20
"""Bytes read at a time. A longer line is looked at in pieces."""
UNKNOWN = "unknown"
PLAIN_LOG = "log"
NOTHING_KNOWN = "a text in which nothing is recognised"
_LOG = re.compile(
    r"\b(?:DEBUG|INFO|WARN(?:ING)?|ERROR|FATAL|Traceback|Exception|Error)\b|^\s*\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d|"
    r"^\[ *\d{1,9}\.\d{6}\] |^\[?[IWEF]\d{3,4} \d\d:\d\d:\d\d"
)
_PROGRAM = re.compile(
    rb"#!|(?:[ \t]*(?:#[^\n]*)?\r?\n)*(?:(?:import|from) [A-Za-z_][\w.]*(?:\s*$| import | as |, )|set -[eux])",
    re.MULTILINE,
)
"""How a script or a program begins: a shebang, or after comments an import or the shell's options."""
_BOMS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


def looks_like_text(head: bytes) -> bool:
    """Whether the first bytes of a file are text: no zero bytes and few other control characters."""
    if any(head.startswith(bom) for bom in _BOMS):
        return True
    control = sum(byte < 32 and byte not in (8, 9, 10, 12, 13, 27) for byte in head)
    return bool(head) and b"\0" not in head and control <= len(head) / 50


def is_program(head: bytes) -> bool:
    """Whether a text is a script or a program, and no output of one."""
    return _PROGRAM.match(head[:4096]) is not None


def _is_comment(text: str) -> bool:
    """Whether it is no part of a program; what a scheduler reads is."""
    return text.lstrip().startswith("#") and not text.startswith(("#SBATCH", "#PBS", "#BSUB", "#$"))


def read_log(stream: BinaryIO, path: str, head: bytes, modified: float, topics: Sequence[Topic], facts: Facts) -> Input:
    """Gives every line to the topics that ask for it, and says what the file is."""
    program = is_program(head)
    asked = [
        (re.compile(one.trigger).search if one.trigger else None, one.collect)
        for one in topics
        if one.collect is not None and (one.of_programs or not program)
    ]
    kinds: set[str] = set()
    ranks: set[int] = set()
    like_log = False
    for line in _lines(stream, path, head, modified):
        if not line.text or (program and _is_comment(line.text)):
            continue
        if line.rank is not None:
            ranks.add(line.rank)
            facts.last_lines[line.rank] = (path, line.number, line.text)
        like_log = like_log or _LOG.search(line.text) is not None
        for trigger, collect in asked:
            if (trigger is None or trigger(line.text)) and (kind := collect(line, facts)):
                kinds.add(kind)
    rank = next(iter(ranks)) if len(ranks) == 1 else None
    if not kinds and not like_log:
        return Input(path, UNKNOWN, rank, tuple(sorted(ranks)), NOTHING_KNOWN)
    return Input(path, ", ".join(sorted(kinds)) or PLAIN_LOG, rank, tuple(sorted(ranks)))


def _lines(stream: BinaryIO, path: str, head: bytes, modified: float) -> Iterator[Line]:
    encoding = next((name for bom, name in _BOMS.items() if head.startswith(bom)), "utf-8")
    text = io.TextIOWrapper(stream, encoding=encoding, errors="replace", newline=None)
    rank, year = rank_in_path(path), time.gmtime(modified).tm_year
    number = 0
    whole = True
    while raw := text.readline(CHUNK):
        number += whole
        whole = raw.endswith("\n")
        yield line_of(path, number, raw, rank, year)
