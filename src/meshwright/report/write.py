"""Write a report: the page, the results beside it, and a PNG of each chart."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from meshwright.bench.documents import FILE, results_text
from meshwright.bench.result import Bench
from meshwright.report.study import Study, make_study
from meshwright.spec.errors import RequestError
from meshwright.train.config.files import write_atomically

PAGE = "report.html"
NEEDED = ("altair", "vl_convert")
"""Modules of the extra `report`."""


class ReportError(RequestError):
    """A report that cannot be written."""


@dataclass(frozen=True, slots=True)
class Report:
    """What was written."""

    page: Path
    results: tuple[Path, ...]
    pictures: tuple[Path, ...]
    charts: tuple[str, ...]
    """Keys of the charts that were drawn."""
    left_out: dict[str, str]
    """Why others were not."""
    study: Study


def write_report(
    bench: Bench | Sequence[tuple[str, Bench]], folder: Path, *, pictures: bool = True, running: bool = False
) -> Report:
    """Write `folder/report.html`, `results.json` (`NAME.results.json` of several) and, with `pictures`, the PNGs.

    `running`: the bench goes on, so that the page loads itself anew every few seconds. Every file is whole or not
    there. Raises ReportError where Altair is missing or the folder cannot be written.
    """
    runs = [("bench", bench)] if isinstance(bench, Bench) else list(bench)
    if not runs or len({name for name, _ in runs}) < len(runs):
        raise ReportError("A report needs one bench, or several of different names.")
    with reported(folder):
        return _write(make_study(runs), folder, pictures, running)


@contextmanager
def reported(folder: Path) -> Iterator[None]:
    """Inside, what keeps a page from being written into `folder` is a ReportError."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in NEEDED:
            raise
        raise ReportError(
            f'The report needs {error.name}, which is not installed here: pip install "meshwright[report]".'
        ) from error
    except OSError as error:
        raise ReportError(f"Cannot write {error.filename or folder}: {error.strerror}.") from error


def _write(study: Study, folder: Path, pictures: bool, running: bool) -> Report:
    from meshwright.report.bundle import vega_javascript
    from meshwright.report.figures import draw, write_pictures
    from meshwright.report.page import page

    folder.mkdir(parents=True, exist_ok=True)
    drawn = draw(study)
    results = _write_results(study, folder)
    write_atomically(folder / PAGE, page(study, drawn, vega_javascript(), folder, running=running))
    left_out = {figure.key: figure.missing for figure in drawn.figures if figure.chart is None}
    written = write_pictures(drawn, folder) if pictures and not running else []
    return Report(folder / PAGE, results, tuple(written), tuple(drawn.specs), left_out, study)


def _write_results(study: Study, folder: Path) -> tuple[Path, ...]:
    """Each bench as it was read; of several, under their names."""
    paths = []
    for name, bench in study.runs:
        path = folder / (FILE if len(study.runs) == 1 else f"{_file_name(name)}.{FILE}")
        write_atomically(path, results_text(bench))
        paths.append(path)
    return tuple(paths)


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.+-]+", "_", name).strip(".") or "bench"
