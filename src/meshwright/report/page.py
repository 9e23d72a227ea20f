"""The page: one HTML text that holds style, script, data and charts, and loads nothing.

Every text of a bench is escaped: for HTML, and inside script elements so that it cannot end them. The page's own
security policy forbids the browser to load anything at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from meshwright.bench.result import Bench
from meshwright.report.charts.common import CONFIG, Figure
from meshwright.report.figures import Drawn, as_columns, without_legends
from meshwright.report.results_table import results_table
from meshwright.report.study import LARGEST, Study
from meshwright.report.words import progress, summary
from meshwright.spec.units import count

REFRESH_SECONDS = 10
"""While a bench runs the page loads itself anew this often."""
POLICY = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data:"
PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="$policy">
<meta name="viewport" content="width=device-width, initial-scale=1">
$refresh<title>$title</title>
<style>
$style</style>
</head>
<body>
<header>
<h1>$title</h1>
$facts
</header>
<main>
<h2>Summary</h2>
$progress$summary
<h2>Results</h2>
$table
<h2>Charts</h2>
<div class="charts">
$charts
</div>
</main>
<footer class="soft">
$footer
</footer>
<script type="application/json" id="data">$data</script>
<script type="application/json" id="specs">$specs</script>
<script type="application/json" id="config">$config</script>
<script>$vega</script>
<script>
$script</script>
</body>
</html>
""")
WORK_WORDS = {
    "seq_len": "sequence length", "global_batch": "global batch", "tokens_per_step": "tokens a step",
    "warm_up": "warm-up",
}  # fmt: skip


def page(study: Study, drawn: Drawn, javascript: str, folder: Path, *, running: bool = False) -> str:
    """The whole page. `javascript` is Vega's bundle; `running` makes the page load itself anew."""
    bench = study.runs[0][1]
    several = len(study.runs) > 1
    title = f"Layouts of {_word(bench.work.get('model', 'a model'))} compared" if not several else _runs_title(study)
    assets = files("meshwright.report") / "assets"
    return PAGE.substitute(
        policy=escape(POLICY),
        refresh=f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}">\n' if running else "",
        title=escape(title),
        style=(assets / "page.css").read_text(encoding="utf-8"),
        facts="\n".join(_facts(name if several else "", one) for name, one in study.runs),
        progress=_progress(study, running),
        summary=_summary(study),
        table=results_table(study, folder),
        charts="\n".join(_figure(figure) for figure in drawn.figures),
        footer="\n".join(_origin(name if several else "", one) for name, one in study.runs),
        data=script_json({name: as_columns(records) for name, records in drawn.records.items()}),
        specs=script_json({key: without_legends(spec) for key, spec in drawn.specs.items()}),
        config=script_json(CONFIG),
        vega=javascript,
        script=(assets / "page.js").read_text(encoding="utf-8"),
    )


def script_json(value: Any) -> str:
    """JSON that may stand in a script element: no `<`, `>` or `&`, and no line ends that only JavaScript knows."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


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
    items = "".join(f"<div><dt>{escape(key)}</dt><dd>{escape(value)}</dd></div>" for key, value in pairs if value != "")
    return f'<dl class="facts">{items}</dl>'


def _origin(name: str, bench: Bench) -> str:
    before = f"{escape(name)}: " if name else ""
    return f"<p>{before}measured {escape(bench.created)} by <code>{escape(bench.command)}</code></p>"


def _word(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: ""}[value]
    if isinstance(value, (int, float)) and abs(value) < LARGEST:
        return count(value) if value >= 1e6 else f"{value:,}" if isinstance(value, int) else f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _figure(figure: Figure) -> str:
    """A chart's place, or the sentence that says why there is none."""
    title = f"<h3>{escape(figure.title)}</h3>"
    if figure.chart is None:
        return f'<div class="left-out">{title}<p class="soft">Left out: {escape(figure.missing)}.</p></div>'
    notes = "".join(f'<p class="notes">{escape(note)}</p>' for note in figure.notes)
    label = escape(f"{figure.title}. {figure.caption}")
    place = f'<div class="chart" id="chart-{figure.key}" data-label="{label}"></div>'
    caption = f"<figcaption>{escape(figure.caption)}</figcaption>"
    return f"<figure{' class=wide' if figure.wide else ''}>{title}{_legend(figure)}{place}{notes}{caption}</figure>"


def _legend(figure: Figure) -> str:
    items = "".join(f'<li><i style="background:{colour}"></i>{escape(name)}</li>' for name, colour in figure.legend)
    return f'<ul class="legend">{items}</ul>' if items else ""
