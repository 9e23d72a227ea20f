"""What ranks were at before a hang: progress bars (tqdm's format) and texts that name a phase."""

from __future__ import annotations

import re

from meshwright.diagnose.logs.line import Line, holds
from meshwright.diagnose.watchdog.facts import Doing, Watchdog

SAVE, END, EVALUATION, DATA = "save", "end", "evaluation", "data"
LAST = 4
"""Of each file and rank, how many are kept."""
MOST_PLACES = 8192

_BAR = re.compile(r"(\d{1,3})%\|[^|]*\|\s*[\d.,]+\w*/[\d.,?]+\w* \[((?:\d+:)?\d{1,2}:\d\d)<[^,\]]*(?:,\s*([^\],]*))?")
_TRAINS = re.compile(r"loss|epoch|step|train", re.IGNORECASE)
_DATA_UNIT = re.compile(r"\b[kMGT]?i?B/s|(?:examples|files|docs|samples|rows|lines)/s|[kMG]B/s", re.IGNORECASE)
_DATA_TEXT = re.compile(
    r"\b(?:tokeniz|pre-?process|prepar|running tokenizer|building (?:dataset|index)|generating \w+ split|download"
    r"|indexing|map\b|filter\b|grouping texts|packing|caching|loading dataset)",
    re.IGNORECASE,
)
_ENDS = (
    "reached",
    "finish",
    "complete",
    "end of",
    "ended",
    " end",
    " done",
    "no more",
    "ran out",
    "exhaust",
    "stopped",
)
_PHASES = (
    (END, _ENDS, re.compile(
        r"max_(?:epochs|steps)\S* reached|training (?:is |was |has )?(?:done|complete|finish|stopped)"
        r"|finished training|end of (?:training|epoch|data)|epoch \S* ?(?:end|ended|finished|done|complete)"
        r"|(?:exhausted|ran out of|no more) (?:data|batches|samples)",
        re.IGNORECASE,
    )),
    (SAVE, ("sav",), re.compile(
        r"\bsaving\b.{0,60}\b(?:checkpoint|model|state|optimizer|weights|shard)|saving (?:current )?state"
        r"|save_(?:checkpoint|state|model|pretrained)\b|checkpoint.{0,20}\bsav(?:ing|ed)\b",
        re.IGNORECASE,
    )),
    (EVALUATION, ("eval", "validat", "predict"), re.compile(
        r"\*{3,} ?running (?:evaluation|prediction)|\b(?:start(?:ing)?|running|begin) (?:evaluation|validation|eval)\b"
        r"|^\W*(?:evaluating|validating)\b",
        re.IGNORECASE,
    )),
    (DATA, ("tokeniz", "preprocess", "building"), re.compile(
        r"\b(?:tokenizing|preprocessing|running tokenizer|building (?:dataset|index))", re.IGNORECASE,
    )),
)  # fmt: skip


def collect_doing(line: Line, known: Watchdog) -> None:
    """Keeps the line where it says what its rank is at."""
    found = doing_of(line)
    if found is None:
        return
    key = line.path, line.rank
    if key in known.doing or len(known.doing) < MOST_PLACES:
        known.doing[key] = [*known.doing.get(key, ())[-LAST + 1 :], found]


def doing_of(line: Line) -> Doing | None:
    """A progress bar over data that is not yet full, or a phase that is named."""
    # tqdm redraws its bar with carriage returns; the last one counts.
    bars = list(_BAR.finditer(line.text)) if "%|" in line.text else []
    if bars and int(bars[-1][1]) < 100:
        bar, before = bars[-1], line.text[: bars[-1].start()][-60:]
        if _TRAINS.search(before) or "loss" in line.text[bar.start() :]:
            return None
        if _DATA_UNIT.search(bar[3] or "") or _DATA_TEXT.search(before):
            return Doing(line, DATA, _seconds(bar[2]))
        return None
    lower = line.text.lower()
    for kind, keys, pattern in _PHASES:
        if holds(lower, keys) and pattern.search(line.text):
            return Doing(line, kind)
    return None


def _seconds(clock: str) -> float:
    """Seconds of `30:01` or `1:30:01`."""
    total = 0
    for part in clock.split(":"):
        total = 60 * total + int(part)
    return float(total)
