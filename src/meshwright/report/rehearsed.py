"""The memory of a rehearsed rank as a page and as a PNG, beside its other files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.rehearse.result import RankRehearsal
from meshwright.report.write import reported
from meshwright.spec.cluster import Device
from meshwright.train.config.files import write_atomically

if TYPE_CHECKING:
    from meshwright.report.figures import Drawn

PAGE, PICTURE = "memory.html", "memory.png"


def write_memory(found: RankRehearsal, device: Device, facts: Mapping[str, str], folder: Path) -> list[Path]:
    """Write `memory.html`, which loads nothing, and `memory.png` into `folder/rank-N`; `found` has its history.

    `facts` stand on the page: model, layout and what else there is to say of the job. Raises ReportError where Altair
    is missing or the folder cannot be written.
    """
    with reported(folder):
        from meshwright.report.bundle import vega_javascript
        from meshwright.report.figures import picture

        place, drawn = folder / f"rank-{found.rank}", draw_memory(found, device)
        place.mkdir(parents=True, exist_ok=True)
        write_atomically(place / PAGE, memory_page(found, facts, drawn, vega_javascript()))
        write_atomically(place / PICTURE, picture(drawn.figures[0], drawn))
    return [place / PAGE, place / PICTURE]


def draw_memory(found: RankRehearsal, device: Device) -> Drawn:
    """The chart of one rank."""
    from altair.utils.schemapi import debug_mode

    from meshwright.report.charts.timeline import memory_over_step
    from meshwright.report.figures import drawn_of

    with debug_mode(False):
        figure, tables = memory_over_step(found, device.memory_bytes, device.name)
        return drawn_of((figure,), tables)


def memory_page(found: RankRehearsal, facts: Mapping[str, str], drawn: Drawn, javascript: str) -> str:
    """The whole page. `javascript` is Vega's bundle."""
    from meshwright.report.shell import facts_html, figure_html, shell

    charts = f'<div class="charts">\n{figure_html(drawn.figures[0])}\n</div>'
    origin = "<p>Rehearsed: the program ran on tensors without numbers; bytes are those that it asked for.</p>"
    title = f"Memory of rank {found.rank}: {facts['model']}, {facts['layout']}"
    return shell(title, facts_html([*facts.items(), *_of_rank(found)]), charts, origin, drawn, javascript)


def _of_rank(found: RankRehearsal) -> list[tuple[str, str]]:
    run = found.micro_batches_run
    left_out = f", of which {run} were run" if run < found.micro_batches else ""
    return [("rank", str(found.rank)), ("micro-batches", f"{found.micro_batches:,}{left_out}")]
