"""How much of a waiting rank's time others make use of."""

from __future__ import annotations

import pytest

from meshwright.bench.compute.session import lent


@pytest.mark.parametrize(
    ("ranks", "cores", "share"), [(4, 4, 0.0), (2, 8, 0.0), (1, 1, 0.0), (4, 1, 1.0), (4, 2, 5 / 6), (3, 2, 2 / 3)]
)
def test_ranks_lend_as_far_as_cores_are_short(ranks: int, cores: int, share: float) -> None:
    assert lent(ranks, cores) == pytest.approx(share)
