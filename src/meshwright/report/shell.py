"""Shell: what any page is made of: one HTML text that holds style, script, data and charts, and loads nothing.

Inside script elements every text is escaped so that it cannot end them. The page's own security policy forbids the
browser to load anything at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from meshwright.report.charts.common import CONFIG, Figure
from meshwright.report.figures import Drawn, as_columns, without_legends

POLICY = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data:"
PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="$policy">
<meta name="viewport" content="width=device-width, initial-scale=1">
$head<title>$title</title>
<style>
$style</style>
</head>
<body>
<header>
<h1>$title</h1>
$facts
</header>
<main>
$main
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


def shell(title: str, facts: str, main: str, footer: str, drawn: Drawn, javascript: str, *, head: str = "") -> str:
    """A whole page. `title` is text, the other words are HTML; `javascript` is Vega's bundle."""
    assets = files("meshwright.report") / "assets"
    return PAGE.substitute(
        policy=escape(POLICY),
        head=head,
        title=escape(title),
        style=(assets / "page.css").read_text(encoding="utf-8"),
        facts=facts,
        main=main,
        footer=footer,
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


def facts_html(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and values, without those that are empty."""
    items = "".join(f"<div><dt>{escape(key)}</dt><dd>{escape(value)}</dd></div>" for key, value in pairs if value != "")
    return f'<dl class="facts">{items}</dl>'


def figure_html(figure: Figure) -> str:
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
