"""A Backtest for people: errors by source and device, where they lie, verdicts, regret, the worst rows."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from meshwright.cli.bars import bar
from meshwright.cli.tables import table, titled
from meshwright.cost.result import AT_RISK, DOES_NOT_FIT, FITS
from meshwright.plan.backtest import FIT, VALIDATE
from meshwright.plan.regret import LEAST_ROWS
from meshwright.plan.scores import time_error
from meshwright.spec.notation import format_layout
from meshwright.spec.units import duration, percent

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

    from meshwright.plan.backtest import Backtest, Scores
    from meshwright.plan.pricing import PricedRun
    from meshwright.plan.scores import ErrorScore

SHOWN = 10
"""Rows of the lists that would otherwise be long."""
EDGES = (-0.5, -0.3, -0.2, -0.1, -0.05, 0.05, 0.1, 0.2, 0.3, 0.5)
"""Where the histogram of errors is cut."""


def blocks(result: Backtest, unpriced: bool = False) -> Iterator[RenderableType]:
    """What `meshwright backtest` prints, from top to bottom; the answer comes last."""
    shown = result.by_role[VALIDATE] if result.by_role[VALIDATE].rows else result.scores
    fitted = result.by_role[FIT] if shown is not result.scores and result.by_role[FIT].rows else None
    which = "validate rows" if shown is not result.scores else "all rows"
    for title, by, of_shown, of_fitted in (
        (f"Step time by source, {which}", "source", shown.sources, fitted.sources if fitted else {}),
        (f"Step time by device, {which}", "device", shown.devices, fitted.devices if fitted else {}),
        (f"Peak memory by source, {which}", "source", shown.memory, fitted.memory if fitted else {}),
        (f"Peak memory by device, {which}", "device", shown.memory_devices, fitted.memory_devices if fitted else {}),
    ):
        if of_shown or of_fitted:
            yield error_table(title, by, of_shown, of_fitted)
    if "time" in result.scores.overall:
        yield histogram(result.scored)
        yield worst_table(result.scored)
    if any(result.scores.verdicts.values()):
        yield verdict_table(result.scores.verdicts)
    if result.groups:
        yield regret_table(result)
    if result.unpriced or result.unscored:
        yield unpriced_table(result, unpriced)
    yield answer_table(result, shown, which)


def error_table(title: str, by: str, shown: Mapping[str, ErrorScore], fitted: Mapping[str, ErrorScore]) -> Group:
    """Errors by name; where some rows were fitted to, their number and mean error stand beside."""
    columns = [by, ">rows", ">MAPE", ">median", ">p90", ">bias", ">worst"]
    if fitted:
        columns += [">fit rows", ">fit MAPE"]
    rows = []
    for name in [*shown, *(name for name in fitted if name not in shown)]:
        cells = _error_cells(shown[name]) if name in shown else [""] * 6
        if fitted:
            cells += [f"{fitted[name].rows}", percent(fitted[name].mape)] if name in fitted else ["", ""]
        rows.append([name, *cells])
    return titled(title, table(columns, rows, drop=("fit rows", "fit MAPE", "worst", "p90")))


def _error_cells(score: ErrorScore) -> list[str]:
    sizes = (percent(value) for value in (score.mape, score.median, score.p90))
    return [f"{score.rows}", *sizes, f"{score.bias * 100:+.1f} %", percent(score.worst)]


def histogram(scored: Sequence[PricedRun]) -> Group:
    """How many rows' step times are how far off, too fast on top."""
    errors = [error for row in scored if (error := time_error(row)) is not None]
    count = Counter(sum(error >= edge for edge in EDGES) for error in errors)
    most = max(count.values(), default=1)
    marks = [f"{edge * 100:+.0f} %" for edge in EDGES]
    names = [
        f"below {marks[0]}",
        *(f"{a} to {b}" for a, b in itertools.pairwise(marks)),
        f"above {marks[-1]}",
    ]
    rows = [(name, f"{count[index]}", bar(count[index] / most, 40)) for index, name in enumerate(names)]
    return titled("Price against measured step time, all scored rows", table(("", ">", ""), rows, header=False))


def verdict_table(verdicts: Mapping[str, Mapping[str, int]]) -> Group:
    """What was said of runs that came through and of those that did not."""
    said = (FITS, AT_RISK, DOES_NOT_FIT)
    rows = [[name, *(f"{count.get(verdict, 0)}" for verdict in said)] for name, count in verdicts.items()]
    return titled("Verdict on runs that", table(("", *(f">{verdict}" for verdict in said)), rows))


def regret_table(result: Backtest) -> Group:
    """The jobs whose pick ran out of memory, then those on which it lost most."""
    worst = sorted(result.groups, key=lambda group: (not group.pick_out_of_memory, -group.regret))[:SHOWN]
    rows = [
        (
            f"{group.key['source']} {group.key['layers']}×{group.key['hidden']}",
            f"{group.key['gpus']}×{group.key['gpu']}",
            f"{group.key['global_batch']} × {group.key['seq_len']}",
            f"{group.rows}",
            percent(group.regret),
            percent(group.random_regret),
            f"{group.spearman:.2f}",
            f"{group.choice}: out of memory" if group.pick_out_of_memory else group.pick,
        )
        for group in worst
    ]
    title = f"Regret: jobs run in at least {LEAST_ROWS} layouts, the {len(rows)} worst of {len(result.groups)}"
    columns = ("job", "devices", ">batch × seq", ">rows", ">regret", ">at random", ">rank correlation", "pick")
    return titled(title, table(columns, rows, drop=("rank correlation", "at random", "rows", "batch × seq", "devices")))


def worst_table(scored: Sequence[PricedRun]) -> Group:
    """The rows whose step time is furthest off, as a ratio."""
    timed = [row for row in scored if time_error(row) is not None]
    worst = sorted(timed, key=lambda row: -abs(math.log(row.step_seconds / (row.run.step_seconds or 1.0))))
    rows = [
        (
            row.run.id,
            f"{row.run.model_name} {row.run.devices}×{row.nouns.cluster.device.name}",
            format_layout(row.nouns.layout),
            duration(row.run.step_seconds or 0.0),
            duration(row.step_seconds),
            f"{row.step_seconds / (row.run.step_seconds or 1.0):.2f}",
        )
        for row in worst[:SHOWN]
    ]
    columns = ("run", "model", "layout", ">measured", ">priced", ">ratio")
    return titled(f"Worst {len(rows)} step times", table(columns, rows, drop=("model", "measured")))


def unpriced_table(result: Backtest, every: bool) -> Group:
    """Runs without a price: every one, or how many for which reason; and priced ones that are not scored."""
    if every:
        rows = [(row.run.id, row.reason) for row in result.unpriced]
    else:
        reasons = Counter(row.reason for row in result.unpriced)
        rows = [(f"{count}", reason) for reason, count in reasons.most_common()]
    if result.unscored:
        of_sources = ", ".join(f"{source} {count}" for source, count in result.unscored.items())
        rows.append((f"{sum(result.unscored.values())}", f"priced, not scored: recomputation unknown ({of_sources})"))
    hint = "" if every or not result.unpriced else "; --unpriced lists them"
    return titled(
        f"Without a price: {len(result.unpriced):,} of {result.rows:,} runs{hint}", table(("", ""), rows, header=False)
    )


def answer_table(result: Backtest, shown: Scores, which: str) -> Group:
    """The errors of the rows shown together, the sets that other tools publish figures of, and the regret."""
    rows = [[f"all {which.removeprefix('all ')}", name, *_error_cells(score)] for name, score in shown.overall.items()]
    rows += [[headline.name, headline.quantity, *_error_cells(headline.score)] for headline in result.headlines]
    if result.regret:
        r = result.regret
        shares = (percent(share) for share in (r.mean, r.median, r.p90))
        rows.append(["regret of the pick", "throughput", f"{r.groups} jobs", *shares, "", percent(r.worst)])
    title = f"{len(result.scored):,} of {result.rows:,} runs scored"
    columns = ("", "", ">rows", ">mean", ">median", ">p90", ">bias", ">worst")
    return titled(title, table(columns, rows, header=bool(rows), drop=("worst", "p90")))
