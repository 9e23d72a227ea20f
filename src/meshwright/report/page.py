"""The page of a report: its facts, summary, table and charts. Every text of a bench is escaped for HTML."""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any

from meshwright.bench.result import Bench
from meshwright.report.figures import Drawn
from meshwright.report.results_table import results_table
from meshwright.report.shell import facts_html, figure_html, shell
from meshwright.report.study import LARGEST, Study
from meshwright.report.words import progress, summary
from meshwright.spec.units import count

REFRESH_SECONDS = 10
"""While a bench runs the page loads itself anew this often."""
WORK_WORDS = {
    "seq_len": "sequence length", "global_batch": "global batch", "tokens_per_step": "tokens a step",
    "warm_up": "warm-up",
}  # fmt: skip


def page(study: Study, drawn: Drawn, javascript: str, folder: Path, *, running: bool = False) -> str:
    """The whole page. `javascript` is Vega's bundle; `running` makes the page load itself anew."""
    bench = study.runs[0][1]
    several = len(study.runs) > 1
    title = f"Layouts of {_word(bench.work.get('model', 'a model'))} compared" if not several else _runs_title(study)
    charts = "\n".join(figure_html(figure) for figure in drawn.figures)
    main = f"""<h2>Summary</h2>
{_progress(study, running)}{_summary(study)}
<h2>Results</h2>
{results_table(study, folder)}
<h2>Charts</h2>
<div class="charts">
{charts}
</div>"""
    return shell(
        title,
        "\n".join(_facts(name if several else "", one) for name, one in study.runs),
        main,
        "\n".join(_origin(name if several else "", one) for name, one in study.runs),
        drawn,
        javascript,
        head=f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}">\n' if running else "",
    )


def _runs_title(study: Study) -> str:
    return f"{len(study.runs)} benches compared: {', '.join(name for name, _ in study.runs)}"


def _progress(study: Study, running: bool) -> str:
    told = []
    for name, bench in study.runs:
        if line := progress(bench):
            run = f"{name}: " if len(study.runs) > 1 else ""
            told.append(f"{run}{line}{'' if running else '; the bench was stopped before its end'}")
    return "".join(f'<p class="progress" role="status">{escape(line)}</p>\n' for line in told)


def _summary(study: Study) -> str:
    sentences = list(summary(study))
    warning = f'<p class="warning">{escape(sentences.pop(0))}</p>\n' if study.differences else ""
    return f'{warning}<ul class="summary">\n{_items(sentences)}</ul>'


def _items(sentences: Iterable[str]) -> str:
    return "".join(f"<li>{escape(sentence)}</li>\n" for sentence in sentences)


def _facts(name: str, bench: Bench) -> str:
    """The work and the machine of a bench, which all its rows have in common."""
    pairs = [("bench", name)] if name else []
    pairs += [(WORK_WORDS.get(key, key), _word(value)) for key, value in (bench.work | bench.machine).items()]
    return facts_html(pairs)


def _origin(name: str, bench: Bench) -> str:
    before = f"{escape(name)}: " if name else ""
    return f"<p>{before}measured {escape(bench.created)} by <code>{escape(bench.command)}</code></p>"


def _word(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: ""}[value]
    if isinstance(value, (int, float)) and abs(value) < LARGEST:
        return count(value) if value >= 1e6 else f"{value:,}" if isinstance(value, int) else f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
