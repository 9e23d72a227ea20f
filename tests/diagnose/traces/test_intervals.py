"""Sets of time spans, against counting small whole numbers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from meshwright.diagnose.traces.intervals import difference, intersection, total, union, within

spans = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=12)


def moments(found: object) -> set[int]:
    """The unit moments [k, k+1) that spans with whole ends cover."""
    return {k for begin, end in np.asarray(found).reshape(-1, 2) for k in range(int(begin), int(end))}


@given(spans, spans)
def test_spans_are_sets_of_moments(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    x, y = union(a), union(b)
    assert moments(x) == moments(a)
    assert moments(intersection(x, y)) == moments(a) & moments(b)
    assert moments(difference(x, y)) == moments(a) - moments(b)
    assert total(x) == len(moments(a))
    assert moments(within(x, 5, 20)) == moments(a) & set(range(5, 20))


@given(spans)
def test_a_union_is_sorted_and_its_spans_do_not_touch(a: list[tuple[int, int]]) -> None:
    found = union(a).reshape(-1)
    assert (np.diff(found) > 0).all()
