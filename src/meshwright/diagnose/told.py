"""A Finding in lines of plain text, and ranks in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from meshwright.diagnose.finding import Finding

LONGEST = 200
"""Characters of a line of evidence; `--json` has all of them."""
MOST = 12
"""Ranks that are shown."""


def lines_of(one: Finding) -> Iterator[str]:
    """The cause first; then how sure, the evidence, what would confirm it, what to change."""
    yield one.cause
    yield f"   {one.severity}, {one.confidence}: {one.category}"
    for evidence in one.evidence:
        place = evidence.path + (f":{evidence.line}" if evidence.line else "")
        text = evidence.text if len(evidence.text) <= LONGEST else f"{evidence.text[:LONGEST]}…"
        yield f"   · {_one_line(place)}: {_one_line(text)}"
    if one.confirm:
        yield f"   To confirm: {one.confirm}"
    for change in one.change:
        yield f"   Change: {change}"


def _one_line(text: str) -> str:
    """A file's name or a log's text without what would move the cursor or begin a line."""
    text = text.replace("\t", " ")
    return text if text.isprintable() else "".join(each if each.isprintable() else "�" for each in text)


def ranks_text(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 1, 2`."""
    unique = sorted(set(ranks))
    if len(unique) == 1:
        return f"rank {unique[0]}"
    return f"ranks {', '.join(map(str, unique[:MOST]))}{', …' if len(unique) > MOST else ''}"
