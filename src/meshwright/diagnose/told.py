"""A Finding in lines of plain text."""

from __future__ import annotations

from collections.abc import Iterator

from meshwright.diagnose.finding import Finding

LONGEST = 200
"""Characters of a line of evidence; `--json` has all of them."""


def lines_of(one: Finding) -> Iterator[str]:
    """The cause first; then how sure, the evidence, what would confirm it, what to change."""
    yield one.cause
    yield f"   {one.severity}, {one.confidence}: {one.category}"
    for evidence in one.evidence:
        place = evidence.path + (f":{evidence.line}" if evidence.line else "")
        text = evidence.text if len(evidence.text) <= LONGEST else f"{evidence.text[:LONGEST]}…"
        yield f"   · {place}: {text}"
    if one.confirm:
        yield f"   To confirm: {one.confirm}"
    for change in one.change:
        yield f"   Change: {change}"
