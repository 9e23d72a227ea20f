"""Counts terms of public reports for `meshwright.diagnose.described.reports`.

    python scripts/reports.py cases.jsonl more.jsonl …

Each line of a file is a report: `source`, `category`, `symptom_text` (a list of lines) and `config` (a dict). Only
counts of terms that two reports share, and the reports' sources, are written.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from meshwright.diagnose.described import reports
from meshwright.diagnose.described.reports import terms_of

FEWEST = 2
"""Reports that have a term, below which it tells of one of them alone."""


def main(paths: list[str]) -> None:
    """Writes the file beside the module."""
    rows = [json.loads(line) for path in paths for line in Path(path).read_text(encoding="utf-8").splitlines() if line]
    target = Path(str(reports.__file__)).with_suffix(".json")
    target.write_text(json.dumps(counted(rows), indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{len(rows)} reports, {target.stat().st_size:,} bytes: {target}")


def counted(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The document."""
    kinds = Counter(row["category"] for row in rows)
    places = {kind: at for at, kind in enumerate(sorted(kinds))}
    terms: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        for term in terms_of(text_of(row)):
            terms[term][row["category"]] += 1
    return {
        "sources": sorted({row["source"].split(" ")[0] for row in rows}),
        "kinds": {kind: kinds[kind] for kind in sorted(kinds)},
        "terms": {
            term: " ".join(f"{places[kind]}:{count}" for kind, count in sorted(by_kind.items()))
            for term, by_kind in sorted(terms.items())
            if sum(by_kind.values()) >= FEWEST
        },
    }


def text_of(row: dict[str, Any]) -> str:
    """Symptoms, and the configuration as `described` is given it."""
    return "\n".join([*row["symptom_text"], " ".join(f"{key}: {value}" for key, value in row["config"].items())])


if __name__ == "__main__":
    main(sys.argv[1:])
