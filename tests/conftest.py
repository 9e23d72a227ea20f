"""Fixtures of the whole suite: pools of ranks, `ranks` and `ranks8` (how to use: `meshwright.train.launch.pool`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from meshwright.train.launch.pool import RankPool


# Beside ranks on the same cores an example may take any time.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


@pytest.fixture(scope="session")
def ranks() -> Iterator[RankPool]:
    """Four gloo ranks, started when the first test of a pytest process asks for them."""
    from meshwright.train.launch.pool import RankPool

    with RankPool(4) as pool:
        yield pool


@pytest.fixture(scope="session")
def ranks8() -> Iterator[RankPool]:
    """Eight gloo ranks, for the few tests of three axes."""
    from meshwright.train.launch.pool import RankPool

    with RankPool(8) as pool:
        yield pool
