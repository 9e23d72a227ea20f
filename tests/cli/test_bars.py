"""Bars of block characters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.cli.bars import bar


@pytest.mark.parametrize(
    ("share", "drawn"),
    [(0.0, ""), (0.5, "████"), (1.0, "████████"), (1 / 64, "▏"), (0.25 + 3 / 64, "██▍"), (7.0, "████████"), (-1.0, "")],
)
def test_a_bar_fills_its_share_to_an_eighth(share: float, drawn: str) -> None:
    assert bar(share, 8) == drawn


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_larger_share_is_never_a_shorter_bar(one: float, other: float) -> None:
    small, large = sorted((one, other))
    assert len(bar(small)) <= len(bar(large)) <= 24
