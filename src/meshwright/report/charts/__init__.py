"""The charts in the order of the page: each is a function to a Figure, one definition for the page and the PNG.

`bars` step time, memory, activity; `pareto` memory against time; `traffic`; `pipeline` ranks and schedule; `curves`
loss and gradient norm; `scaling` ranks and micro-batch; `predicted` against measured. Altair is imported in here only.
"""

from __future__ import annotations

from meshwright.report.charts.bars import activity, memory, step_time
from meshwright.report.charts.common import Figure
from meshwright.report.charts.curves import difference, loss, norm
from meshwright.report.charts.pareto import pareto
from meshwright.report.charts.pipeline import gantt, stages
from meshwright.report.charts.predicted import predicted
from meshwright.report.charts.scaling import micro_batches, scaling
from meshwright.report.charts.traffic import traffic
from meshwright.report.study import Study
from meshwright.report.tables import Tables

__all__ = ["Figure", "draw_all"]


def draw_all(study: Study, tables: Tables) -> tuple[Figure, ...]:
    """Every chart of the report, or why it is left out."""
    first = [draw(tables) for draw in (pareto, predicted, step_time, memory, activity, traffic, stages, gantt)]
    return (*first, *(draw(tables) for draw in (loss, difference, norm)), scaling(study), micro_batches(study))
