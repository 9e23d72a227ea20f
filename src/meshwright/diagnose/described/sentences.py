"""Who wrote a text: a person who speaks of a trouble, or a program."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from meshwright.diagnose.described.words import complaint

SHORT = 4
"""Lines up to which a sentence need not complain to be read as one."""
QUOTED, MOSTLY = 15, 0.5
"""People quote a few lines of a log; of a longer text, at least this share must be sentences."""
_MACHINE = re.compile(
    r"(?:^|\]|\d)\s*NCCL (?:INFO|WARN)\b|\.cpp:\d+\]|WorkNCCL|\b(?:INFO|DEBUG|WARNING|ERROR):|"
    r"\[(?:INFO|WARNING|ERROR)\]|^\((?:raylet|pid=)|^\s*\[[IWEF]\d{3,4} |deprecated|"
    r"^\s*what\(\):|^terminate called after|"
    r"torch[./]distributed[./]elastic|ChildFailedError|^Root Cause \(first|Traceback \(most recent|slurmstepd:|"
    r"^\s*(?:rank|exitcode|error_file|traceback|time|host)\s+:|"
    r"^\s*(?:#|File \"|at 0x)|\bACSCtl:|^\s*\[ *\d{1,9}\.\d{6}\]|"
    r"^\s*(?:Collecting|Downloading|Requirement already|Installing collected|Successfully (?:un)?installed) |"
    r":\d+: \w*Warning: |^\s*\|.*\|\s*$|^\s*\{\"|^\s*(?:Normal|Warning)\s+\w+\s+\d+[smhd]\s|"
    r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d|^wandb: |\brequires \S+[=<>]=|^\[notice\]|^\s*[IWE]\d{4} \d\d:\d\d|"
    r"^\s*(?:INFO|DEBUG|WARNING|ERROR) \d\d-\d\d \d\d:|\berrors?(?: count)? *[:=] *0\s*$|"
    r"\S {3,}\S.*\S {3,}\S"
)
"""Lines that only programs write; a table's among them."""
_TROUBLE = re.compile(
    r"\b(?:warn|error|fail|fatal|critical|overflow|exception|abort|assert|refused|unable|invalid|cannot|killed|"
    r"timed? ?out|out of memory|(?:not|nan|inf)\b|mismatch|hang|hung|stuck)|[a-z]Error\b|错|失败|超时|卡",
    re.IGNORECASE,
)
"""What a program's line has that tells of a trouble …"""
_NONE = re.compile(
    r"[:=] *(?:0|none|no|n/a|not active)\W*$|\bno errors?\b|\b0 errors?\b|recvValue failed", re.IGNORECASE
)
"""… or of none."""
FEWEST_WORDS, MANY_WORDS, PLAIN = 4, 7, 0.4
"""A sentence has this many words, and at least this share of what is between its blanks are plain words."""
_WORD = re.compile(r"[(\"'`*_]*[A-Za-z][A-Za-z'-]*[)\"'`*_]*[.,;?!]*$")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7a3]")
_PREFIX = re.compile(r"^\s*(?:\[[^\]]{0,40}\]:?\s*)+")


def complains(texts: Sequence[str], lines: int, known: bool) -> bool:
    """Whether a person speaks of a trouble in these texts of a file of so many lines.

    Of a file whose kind is known a whole sentence must; and of more lines than people quote, most are sentences.
    """
    texts = _persons(texts)
    sentences = [text for text in texts if is_sentence(text)]
    if not sentences or (lines > QUOTED and len(sentences) < MOSTLY * lines):
        return False
    if known:
        enough = FEWEST_WORDS if lines <= SHORT else MANY_WORDS
        return any(complaint().search(text) and plain_words(text) >= enough for text in sentences)
    return lines <= SHORT or bool(complaint().search("\n".join(texts)))


def spoken(texts: Sequence[str]) -> bool:
    """Whether one of them is a person's sentence."""
    return any(is_sentence(text) for text in _persons(texts))


def _persons(texts: Sequence[str]) -> list[str]:
    return [_PREFIX.sub("", text) for text in texts if not _MACHINE.search(text)]


def plain_words(text: str) -> int:
    """How many words without numbers and signs it has; of scripts without blanks, two letters make one."""
    return sum(bool(_WORD.match(part)) for part in text.split()) + len(_UNSPACED.findall(text)) // 2


def is_sentence(text: str) -> bool:
    """Whether a person might have written it: programs write names, numbers and signs between their words."""
    plain = plain_words(text)
    return plain >= FEWEST_WORDS and plain >= PLAIN * len(text.split())


def asks(texts: Iterable[str]) -> bool:
    """Whether a program's lines tell of a trouble: of a few of them, what they mean is the question."""
    return any(_TROUBLE.search(text) and not _NONE.search(text) for text in texts)


def denies(texts: Sequence[str]) -> bool:
    """Whether one of a program's lines says that there is no trouble."""
    return any(_NONE.search(text) for text in texts)
