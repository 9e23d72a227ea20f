"""Every chart is legal Vega-Lite, names its data, and is left out with a reason where there is none."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

from meshwright.bench.result import Bench
from meshwright.report.charts.scaling import micro_batches, scaling
from meshwright.report.figures import Drawn, as_columns, data_names, draw, picture
from meshwright.report.study import Study, make_study
from tests.report import example
from tests.report.example import bench, done, rows

ALL = (
    "pareto", "predicted", "step-time", "memory", "activity", "traffic", "stages", "schedule", "loss",
    "loss-difference", "gradient-norm", "scaling", "micro-batch",
)  # fmt: skip


def study(found: Bench) -> Study:
    return make_study([("run", found)])


@pytest.fixture(scope="module")
def drawn() -> Drawn:
    """The example with all its charts."""
    return draw(study(bench(rows=rows() + example.micro_batches())))


def test_the_example_has_every_chart(drawn: Drawn) -> None:
    assert tuple(figure.key for figure in drawn.figures) == ALL
    assert tuple(drawn.specs) == ALL


@pytest.mark.parametrize("key", ALL)
def test_a_chart_is_legal_vega_lite(drawn: Drawn, key: str) -> None:
    (figure,) = (figure for figure in drawn.figures if figure.key == key)
    figure.chart.to_dict(validate=True)
    assert figure.title
    assert figure.caption.endswith(".")
    assert data_names(drawn.specs[key]) <= drawn.records.keys()


@pytest.mark.parametrize("key", ALL)
def test_a_picture_shows_the_chart(drawn: Drawn, key: str) -> None:
    (figure,) = (figure for figure in drawn.figures if figure.key == key)
    png = picture(figure, drawn)
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", png[16:24])
    assert 900 < width < 1400
    assert height > 150
    # An empty chart of this size has some 10 kB.
    assert len(png) > 15_000


def test_data_that_several_charts_draw_is_there_once(drawn: Drawn) -> None:
    assert sum("curves" in data_names(spec) for spec in drawn.specs.values()) == 3
    assert all(not any(len(rows) > 20 for rows in spec.get("datasets", {}).values()) for spec in drawn.specs.values())


def bare(**more: Any) -> Bench:
    """One measured row with nothing but a step time."""
    row = done("ddp4", 0.1, 1.0, **more)
    return bench(
        rows=(replace(row, memory_bytes=None, memory_parts={}, activity=None, traffic=(), loss=(), grad_norm=()),)
    )


def test_charts_without_data_say_why_they_are_left_out() -> None:
    found = draw(study(bare()))
    missing = {figure.key: figure.missing for figure in found.figures if figure.chart is None}
    assert set(found.specs) == {"step-time"}
    assert set(missing) == set(ALL) - {"step-time"}
    assert missing["predicted"] == "no measured row has a prediction"
    assert missing["stages"] == missing["schedule"] == "no measured layout is a pipeline with a traced step"
    assert all(missing.values())


def test_a_bench_of_failures_has_no_chart() -> None:
    found = draw(study(bench(rows=rows()[6:])))
    assert not found.specs
    assert all(figure.missing for figure in found.figures)


def points(figure: Any) -> list[tuple[str, int, float]]:
    """Series, x and tokens/s of a curve."""
    (data,) = {str(values): values for values in figure.chart.to_dict()["datasets"].values()}.values()
    return [(record["series"], record["x"], record["tokens"]) for record in data]


def test_scaling_joins_rows_that_differ_in_degrees_only() -> None:
    found = (
        done("ddp2", 0.4, 1.0, ranks=2), done("ddp4", 0.2, 1.0), done("ddp4 tp2", 0.1, 1.0, ranks=8),
        done("ddp8", 0.1, 1.0, ranks=8, layout="ddp8 mbs4"), done("pp2:gpipe", 0.4, 1.0, ranks=2),
        done("pp4:1f1b", 0.3, 1.0),
    )  # fmt: skip
    # 8192 tokens a step.
    assert points(scaling(study(bench(rows=found)))) == [("ddp mbs8", 2, 20480.0), ("ddp mbs8", 4, 40960.0)]


def test_ideal_scaling_is_as_much_more_throughput_as_ranks() -> None:
    figure = scaling(study(bench(rows=(done("ddp2", 0.4, 1.0, ranks=2), done("ddp4", 0.25, 1.0)))))
    data = next(iter(figure.chart.to_dict()["datasets"].values()))
    assert [record["ideal"] for record in data] == [20480.0, 40960.0]
    assert data[1]["efficiency"] == pytest.approx(0.8)


def test_micro_batch_curves_join_rows_that_differ_in_it_only() -> None:
    found = points(micro_batches(study(bench(rows=example.micro_batches() + rows()[:1]))))
    # 150, 125 and 112.5 ms.
    assert found == [
        ("fsdp4", 1, pytest.approx(8192 / 0.15)),
        ("fsdp4", 2, 65536.0),
        ("fsdp4", 4, pytest.approx(8192 / 0.1125)),
    ]


def test_runs_of_different_work_share_no_curve() -> None:
    runs = [
        ("a", bench(rows=(done("ddp2", 0.4, 1.0, ranks=2),))),
        ("b", bench(rows=(done("ddp4", 0.2, 1.0),), work=example.WORK | {"global_batch": 64})),
    ]
    assert scaling(make_study(runs)).chart is None
    assert scaling(make_study([runs[0], ("b", replace(runs[1][1], work=example.WORK))])).chart is not None


def test_columns_hold_what_the_records_held() -> None:
    assert as_columns([{"a": 1, "b": None}, {"a": 2, "b": "x"}]) == {"a": [1, 2], "b": [None, "x"]}
    assert as_columns([]) == {}
