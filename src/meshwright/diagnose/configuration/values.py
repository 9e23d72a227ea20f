"""A value as a text, a JSON or a TOML has it, as a number or a truth."""

from __future__ import annotations

import math
import re
from typing import Any

_NUMBER = re.compile(r"[+-]?(?:\d+(?:_\d{3})*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?\Z", re.ASCII)
_TRUTH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
LONGEST = 24
"""Characters of a number; what is longer is no quantity of a job."""
LARGEST = 1e15


def value_of(text: Any) -> int | float | bool | None:
    """What a text or a parsed value says; None: neither a number of a believable size nor a truth."""
    if isinstance(text, bool):
        return text
    if isinstance(text, int | float):
        return text if abs(text) <= LARGEST and not math.isnan(text) else None
    if not isinstance(text, str):
        return None
    text = text.strip().strip("\"',;)}]")
    if (truth := _TRUTH.get(text.lower())) is not None:
        return truth
    if len(text) > LONGEST or not _NUMBER.match(text):
        return None
    number = float(text.replace("_", ""))
    if not math.isfinite(number) or abs(number) > LARGEST:
        return None
    return int(number) if number.is_integer() and "." not in text and "e" not in text.lower() else number
