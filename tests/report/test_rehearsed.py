"""The picture of a rehearsed rank's memory: its data is the rehearsal's, and its page loads nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("altair")

import altair as alt

from meshwright.rehearse.result import Instant, RankRehearsal, Span, Stack
from meshwright.report.charts.timeline import memory_over_step
from meshwright.report.rehearsed import draw_memory, memory_page, write_memory
from meshwright.spec.cluster_text import parse_cluster

GIB = 2.0**30
DEVICE = parse_cluster("8xA100-40GB").device
STACK = Stack(
    step=2,
    events=300,
    at=(0, 100, 200),
    peak=1,
    where=("forward micro-batch 0, layers.0", "backward micro-batch 0", "optimizer"),
    parts={"parameters": (4 * GIB, 4 * GIB, 4 * GIB), "activations": (0.0, 6 * GIB, 1 * GIB)},
    spans=(
        Span(0, 90, "forward", None, 0),
        Span(90, 250, "backward", None, 0),
        Span(260, 300, "optimizer", None, None),
    ),
)
FOUND = RankRehearsal(
    rank=3, pipeline_rank=0, stages=(0,), peak_bytes=10 * GIB, peak=Instant(2, "backward micro-batch 0", ""),
    parts={"parameters": 4 * GIB, "activations": 6 * GIB}, host_bytes=0.0, host_parts={}, activations={}, states={},
    flops={}, module_flops={}, traffic=(), collectives=(), kept={}, timeline=(), operations=1, seconds=0.1, stack=STACK,
)  # fmt: skip
FACTS = {"model": "gpt2 </script><b>", "layout": "fsdp8"}


def test_the_charts_tables_are_the_stack_in_the_axis_unit() -> None:
    figure, tables = memory_over_step(FOUND, DEVICE.memory_bytes, DEVICE.name)
    assert [row["sum"] for row in tables["stack"]] == [4, 10, 5, 5]
    assert [row["parameters"] + row["activations"] for row in tables["stack"]] == [4, 10, 5, 5]
    assert [row["at"] for row in tables["stack"]] == [0, 100, 200, 300]
    assert tables["peak"] == [{"at": 150, "sum": 10, "told": "peak 10 GiB"}]
    assert [(span["name"], span["letter"]) for span in tables["spans"]] == [
        ("forward 0", "F0"), ("backward 0", "B0"), ("optimizer", "opt"),
    ]  # fmt: skip
    assert figure.notes == ("Peak: 10 GiB at step 2, backward micro-batch 0.",)
    alt.Chart.from_dict(figure.chart.to_dict())  # by Vega-Lite's schema


def test_the_devices_memory_is_drawn_where_the_peak_is_near_it() -> None:
    def drawn(peak: float) -> bool:
        return DEVICE.name in str(draw_memory(replace(FOUND, peak_bytes=peak), DEVICE).specs)

    assert not drawn(10 * GIB)
    assert drawn(0.7 * DEVICE.memory_bytes)
    assert drawn(2 * DEVICE.memory_bytes)


def test_the_page_loads_nothing_and_escapes_what_it_is_told() -> None:
    page = memory_page(FOUND, FACTS, draw_memory(FOUND, DEVICE), "/* bundle */")
    assert "default-src &#x27;none&#x27;" in page
    assert not re.search(r"<(link|img|iframe|object)\b|\bsrc=|@import|url\(", page)
    assert "</script><b>" not in page
    assert "<h1>Memory of rank 3: gpt2 &lt;/script&gt;&lt;b&gt;, fsdp8</h1>" in page


def test_page_and_picture_lie_with_the_ranks_other_files(tmp_path: Path) -> None:
    written = write_memory(FOUND, DEVICE, FACTS, tmp_path)
    assert written == [tmp_path / "rank-3" / "memory.html", tmp_path / "rank-3" / "memory.png"]
    assert written[0].stat().st_size < 1_000_000
    assert written[1].read_bytes().startswith(b"\x89PNG")
