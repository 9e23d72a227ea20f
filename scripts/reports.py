"""Learns what reports of each kind of fault have in common, for `meshwright.diagnose.described.reports`.

    python scripts/reports.py add cases.jsonl more.jsonl …
    python scripts/reports.py healthy tests/diagnose/healthy_jobs/*
    python scripts/reports.py fit
    python scripts/reports.py check [FRACTION]

`add` reads reports, one a line: `source`, `category`, `symptom_text` (a list of lines) and `config` (a dict). It keeps
of each only its source, its category, the set of its words, their pairs (as numbers) and the patterns of `words.toml`
that it has, in `reports.jsonl` beside this script. `healthy` does so with some lines of each file that a healthy job
has left. Sources that begin with `written:` are no reports but descriptions that were written for this purpose, many as
what another person might have written who had the trouble of a report (`of`): those are kept whole, in `written.jsonl`.
`fit` writes the weights beside the module. `check` fits to four fifths of the reports at a time (or to a fraction of
them) without the rest and what was written after it, and says in how many of the rest the right kind comes first and
among the first three. Both take some minutes.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import torch

from meshwright.diagnose.described import reports
from meshwright.diagnose.described.reports import NOTHING, SHARES, UNIT, rarity
from meshwright.diagnose.inputs import settings_text

KEPT = Path(__file__).with_suffix(".jsonl")
DESCRIPTIONS = KEPT.with_name("written.jsonl")
FEWEST = {"terms": 3, "marks": 2, "pairs": 5}
"""Reports that have a feature, below which it tells of a few of them alone."""
STIFFNESS = 10.0
"""How much the reports weigh beside the wish for small weights (scikit-learn's C)."""
PUBLIC = 2.0
"""What a public report counts beside a description."""
FOLDS = 5
WRITTEN = "written:"
PARTS = 4
"""Of a healthy job's file."""
Row = Mapping[str, Any]


def add(paths: Iterable[str]) -> None:
    """Keeps the reports and descriptions in files."""
    told = [one for path in paths for one in _lines(Path(path))]
    public = [one for one in told if not _is_written(one)]
    keep(DESCRIPTIONS, (one for one in told if _is_written(one)))
    keep(KEPT, (_row(one["source"].split(" ")[0], one["category"], text_of(one)) for one in public))


def add_healthy(paths: Iterable[str]) -> None:
    """Keeps parts of files in which nothing is wrong."""
    keep(KEPT, (row for path in paths for row in _parts(Path(path))))


def _parts(path: Path) -> Iterator[Row]:
    lines = [line for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    step = max(1, len(lines) // PARTS)
    for at in range(0, len(lines), step)[:PARTS]:
        for length in (1, 3):
            yield _row(f"{path.name}:{at}:{length}", NOTHING, "\n".join(lines[at : at + length]))


def _row(source: str, category: str, text: str, of: str = "") -> Row:
    """`of`: the report after which it was written."""
    found = {group: " ".join(sorted(names)) for group, names in reports.features(text).items()}
    return {"source": source, "category": category, **({"of": of} if of else {}), **found}


def keep(target: Path, rows: Iterable[Row]) -> None:
    """Writes them into the file, in place of what is there from the same source."""
    before = _lines(target) if target.exists() else []
    by_source = {row["source"]: row for row in (*before, *rows)}
    lines = [json.dumps(by_source[source], ensure_ascii=False) for source in sorted(by_source)]
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _lines(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def text_of(report: Row) -> str:
    """Symptoms, and the configuration as `described` is given it."""
    return "\n".join([*report["symptom_text"], settings_text(report["config"])])


def kept() -> list[Row]:
    """All reports and descriptions."""
    written = (_row(one["source"], one["category"], text_of(one), one.get("of", "")) for one in _lines(DESCRIPTIONS))
    return [*_lines(KEPT), *written]


def fit(rows: Sequence[Row]) -> dict[str, Any]:
    """The document with the weights."""
    kinds = Counter(row["category"] for row in rows)
    names = sorted(kinds)
    having = {group: Counter(one for row in rows for one in row[group].split()) for group in SHARES}
    used = {
        group: sorted(one for one, count in counts.items() if count >= FEWEST[group])
        for group, counts in having.items()
    }
    labels = torch.tensor([names.index(row["category"]) for row in rows])
    counting = torch.tensor([1.0 if _is_written(row) else PUBLIC for row in rows], dtype=torch.float64)
    weights, bias = _regress(_matrix(rows, used, having), labels, counting, len(names))
    document: dict[str, Any] = {"kinds": {name: kinds[name] for name in names}, "bias": _rounded(bias)}
    at = 0
    for group, features in used.items():
        told = [_told(having[group][one], _rounded(weights[at + place])) for place, one in enumerate(features)]
        document[group] = dict(zip(features, told, strict=True))
        at += len(features)
    return document


def _matrix(rows: Sequence[Row], used: Mapping[str, list[str]], having: Mapping[str, Counter[str]]) -> torch.Tensor:
    """Reports × features, sparse, each group of a report scaled to its share."""
    entries: list[tuple[int, int, float]] = []
    before = 0
    for group, share in SHARES.items():
        places = {one: before + place for place, one in enumerate(used[group])}
        for line, row in enumerate(rows):
            found = {places[one]: rarity(having[group][one], len(rows)) for one in row[group].split() if one in places}
            length = math.sqrt(math.fsum(value**2 for value in found.values()))
            entries += [(line, place, share * value / length) for place, value in found.items()]
        before += len(places)
    lines, columns, values = zip(*entries, strict=True)
    return torch.sparse_coo_tensor(
        torch.tensor([lines, columns]), torch.tensor(values, dtype=torch.float64), (len(rows), before),
        check_invariants=True,
    ).coalesce()  # fmt: skip


def _regress(
    features: torch.Tensor, labels: torch.Tensor, counting: torch.Tensor, kinds: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights (features × kinds) and bias of a multinomial logistic regression, by L-BFGS."""
    weights = torch.zeros(features.shape[1], kinds, dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(kinds, dtype=torch.float64, requires_grad=True)
    # Each kind counts as much as another, however many reports of it were found.
    of_kind = torch.zeros(kinds, dtype=torch.float64).index_add(0, labels, counting)
    counting = counting * (of_kind.mean() / of_kind)[labels]
    optimizer = torch.optim.LBFGS([weights, bias], max_iter=200, line_search_fn="strong_wolfe", tolerance_grad=1e-5)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        scores = torch.sparse.mm(features, weights) + bias
        wrong = torch.nn.functional.cross_entropy(scores, labels, reduction="none")
        loss = STIFFNESS * (counting * wrong).sum() + weights.square().sum() / 2
        loss.backward()
        return loss

    optimizer.step(closure)
    return weights.detach(), bias.detach()


def _rounded(values: torch.Tensor) -> list[int]:
    return [round(value / UNIT) for value in values.tolist()]


def _told(having: int, weights: Sequence[int]) -> str:
    return " ".join([str(having), *(f"{place}:{weight}" for place, weight in enumerate(weights) if weight)])


def check(rows: Sequence[Row], fraction: float = 1.0) -> tuple[float, float]:
    """Shares of reports whose kind comes first, and among the first three, of weights that were fitted without them."""
    first = third = asked = 0
    for fold in range(FOLDS):
        rest = [row for row in rows if _fold(row) != fold]
        known = reports.of_document(fit(rest[: round(fraction * len(rest))]))
        for row in (row for row in rows if _fold(row) == fold and row["category"] != NOTHING and not _is_written(row)):
            odds = known.likeness({group: row[group].split() for group in SHARES})
            best = sorted(odds, key=lambda kind: -odds[kind])[:3]
            first += best[0] == row["category"]
            third += row["category"] in best
            asked += 1
    return first / asked, third / asked


def _fold(row: Row) -> int:
    """What was written after a report is held out with it."""
    return crc32((row.get("of") or row["source"]).encode()) % FOLDS


def _is_written(row: Row) -> bool:
    return bool(row["source"].startswith(WRITTEN))


def main(asked: list[str]) -> None:
    """Does what is asked."""
    match asked:
        case ["add", *paths] if paths:
            add(paths)
        case ["healthy", *paths] if paths:
            add_healthy(paths)
        case ["fit"]:
            target = Path(str(reports.__file__)).with_suffix(".json")
            target.write_text(json.dumps(fit(kept()), indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
            print(f"{target.stat().st_size:,} bytes: {target}")
        case ["check", *fraction] if len(fraction) <= 1:
            rows = sorted(kept(), key=lambda row: crc32(row["source"].encode()))
            first, third = check(rows, *map(float, fraction))
            told = sum(row["category"] != NOTHING and not _is_written(row) for row in rows)
            print(f"{first:.1%} first, {third:.1%} among the first three, of {told:,} reports")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
