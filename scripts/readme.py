"""Writes the README's generated parts anew: sessions, figures, speed and accuracy tables. Run by `make readme`.

What stands between `<!-- NAME:begin -->` and `<!-- NAME:end -->` is replaced; nothing there is typed by hand.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
SESSION = ("plan", "llama-2-7b", "--cluster", "8xA100-40GB", "--top", "3")


def main() -> None:
    """Rewrite README.md in place."""
    text = README.read_text(encoding="utf-8")
    text = replaced(text, "session", session(*SESSION))
    text = replaced(text, "figures", figures())
    text = replaced(text, "check", session("check"))
    text = replaced(text, "speed", speed())
    text = replaced(text, "backtest", accuracy(json.loads(meshwright("backtest", "--json"))))
    README.write_text(text, encoding="utf-8")


def replaced(text: str, name: str, content: str) -> str:
    """`text` with what stands between the markers of `name` replaced by `content`."""
    pattern = re.compile(rf"(<!-- {name}:begin -->\n).*?(<!-- {name}:end -->)", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"error: README.md has no markers {name}:begin and {name}:end")
    return pattern.sub(lambda match: f"{match[1]}{content}\n{match[2]}", text)


def meshwright(*arguments: str) -> str:
    """What a verb prints on stdout."""
    command = [sys.executable, "-m", "meshwright", *arguments]
    return subprocess.run(
        command, check=True, capture_output=True, text=True, env=os.environ | {"COLUMNS": "110"}
    ).stdout


def session(*arguments: str) -> str:
    """One command and its output."""
    lines = (line.rstrip() for line in meshwright(*arguments).strip("\n").splitlines())
    return "\n".join(("```", f"$ meshwright {' '.join(arguments)}", *lines, "```"))


def speed() -> str:
    """The layouts' speed beside plain scripts; takes some minutes of a quiet machine."""
    command = [sys.executable, str(ROOT / "benchmarks" / "train_speed.py")]
    process = subprocess.run(
        command, check=True, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    return process.stdout.strip()


def figures() -> str:
    """The figures to reach and what is reached; a figure that is missed says so and is no error."""
    command = [sys.executable, str(ROOT / "benchmarks" / "figures.py"), "--markdown"]
    process = subprocess.run(command, check=False, capture_output=True, text=True)
    if process.returncode not in (0, 1):
        raise SystemExit(process.stderr)
    return process.stdout.strip()


def accuracy(document: dict[str, Any]) -> str:
    """The backtest's figures in Markdown: the sets that others publish figures of, then every source and device."""
    headlines = {f"{line['name']}, {line['quantity']}": line["score"] for line in document["headlines"]}
    validate = document["by_role"]["validate"]
    regrets = [group["regret"] for group in document["groups"]]
    random = [group["random_regret"] for group in document["groups"]]
    return "\n\n".join(
        (
            f"{document['rows']:,} published runs, {document['priced']:,} priced, {document['scored']:,} scored "
            "(those of which it is known what they recomputed); the figures are relative errors.",
            errors("`validate` rows", headlines),
            "Regret, the throughput lost by taking the layout that is predicted fastest, over "
            f"{len(regrets)} groups of runs that differ only in layout: mean {percent(fmean(regrets))}, worst "
            f"{percent(max(regrets))}; of a random pick, mean {percent(fmean(random))}.",
            errors("Step time by device", validate["devices"]),
            errors("Peak memory by device", validate["memory_devices"]),
            verdicts(document["oom"]),
        )
    )


def errors(title: str, scores: dict[str, dict[str, float]]) -> str:
    """A table of relative errors, a label a line."""
    lines = [f"| {title} | rows | mean | median | p90 | bias |", "| --- | ---: | ---: | ---: | ---: | ---: |"]
    for name, score in scores.items():
        figures = " | ".join(percent(score[figure]) for figure in ("mape", "median", "p90"))
        lines.append(f"| {name} | {score['rows']:,} | {figures} | {score['bias'] * 100:+.1f} % |")
    return "\n".join(lines)


def verdicts(outcomes: dict[str, dict[str, int]]) -> str:
    """A table of what was said of runs that came through and of those that did not."""
    said = ("fits", "at risk", "does not fit")
    lines = [f"| runs that | {' | '.join(f'said: {verdict}' for verdict in said)} |", "| --- | ---: | ---: | ---: |"]
    for happened, counts in outcomes.items():
        lines.append(f"| {happened} | {' | '.join(f'{counts.get(verdict, 0):,}' for verdict in said)} |")
    return "\n".join(lines)


def percent(share: float) -> str:
    """A share as a percentage with one decimal."""
    return f"{share * 100:.1f} %"


if __name__ == "__main__":
    main()
