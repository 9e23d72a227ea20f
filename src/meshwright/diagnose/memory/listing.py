"""Segments of PyTorch's allocator that somebody printed as text (torch.cuda.memory_snapshot() in an issue, a log)."""

from __future__ import annotations

import ast
from typing import Any

from meshwright.diagnose.logs.late import Late
from meshwright.diagnose.logs.line import Line
from meshwright.diagnose.memory.facts import MOST, MemoryFacts

LONGEST = 4000
"""Characters that are read as Python: all that is kept of a line."""
_CUT = Late(r",?\s{0,4}\.\.\.\s{0,4}(?=[\]})])|,?\s{0,4}Ellipsis")


def look(line: Line, found: MemoryFacts) -> bool:
    """Adds the segment or the list of segments that a line prints; whether it does."""
    text = line.text
    if "'total_size'" not in text or "'blocks'" not in text or len(found.listings) >= MOST:
        return False
    start = min((at for at in (text.find("{"), text.find("[{")) if at >= 0), default=0)
    parsed = _literal(text[start : start + LONGEST].rstrip(" ,"))
    if parsed is not None:
        found.listings.append((line, parsed))
    return parsed is not None


def _literal(text: str) -> Any:
    try:
        parsed = ast.literal_eval(_CUT.sub("", text))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return parsed if isinstance(parsed, (dict, list)) else None
