"""A Finding in lines of plain text."""

from __future__ import annotations

from collections.abc import Iterator

from meshwright.diagnose.finding import Finding


def lines_of(one: Finding) -> Iterator[str]:
    """The cause first; then how sure, the evidence, what would confirm it, what to change."""
    yield one.cause
    yield f"   {one.severity}, {one.confidence}: {one.category}"
    for evidence in one.evidence:
        place = evidence.path + (f":{evidence.line}" if evidence.line else "")
        yield f"   · {_one_line(place)}: {_one_line(evidence.text)}"
    if one.confirm:
        yield f"   To confirm: {one.confirm}"
    for change in one.change:
        yield f"   Change: {change}"


def _one_line(text: str) -> str:
    """A file's name or a log's text without what would move the cursor or begin a line."""
    text = text.replace("\t", " ")
    return text if text.isprintable() else "".join(each if each.isprintable() else "�" for each in text)
