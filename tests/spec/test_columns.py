"""Columns hold the same layouts as rows."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from meshwright.spec.columns import columns_of, stack
from meshwright.spec.layout import Layout

from .layouts import shapes


@given(st.lists(shapes(), min_size=1, max_size=8))
def test_rows_of_stacked_layouts_are_the_layouts(layouts: list[Layout]) -> None:
    columns = stack(layouts)
    assert [columns.row(index) for index in range(len(layouts))] == layouts


@given(shapes())
def test_one_layout_as_numbers_is_the_layout(layout: Layout) -> None:
    assert columns_of(layout).row(0) == layout


@given(st.lists(shapes(), min_size=1, max_size=8), st.data())
def test_taking_rows_keeps_their_order(layouts: list[Layout], data: st.DataObject) -> None:
    wanted = data.draw(st.lists(st.integers(0, len(layouts) - 1), min_size=1))
    taken = stack(layouts).take(np.array(wanted))
    assert [taken.row(index) for index in range(len(wanted))] == [layouts[index] for index in wanted]


@given(st.lists(shapes(), min_size=1, max_size=8))
def test_products_of_degrees_are_the_layouts_own(layouts: list[Layout]) -> None:
    columns = stack(layouts)
    assert columns.devices.tolist() == [layout.devices for layout in layouts]
    assert columns.data.tolist() == [layout.data for layout in layouts]
    assert columns.stages.tolist() == [layout.stages for layout in layouts]
