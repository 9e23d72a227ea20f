"""Which rows a bench has."""

from __future__ import annotations

import pytest

from meshwright.bench.request import layouts_of
from meshwright.spec.errors import LayoutError, RequestError


def test_a_sweep_crosses_every_layout_with_every_value() -> None:
    found = layouts_of(["ddp2, pp2:{gpipe,1f1b}", "fsdp2"], ["mbs=1,4", "ac=none,full"])
    assert len(found) == 4 * 2 * 2
    assert "fsdp2 mbs4 ac:full" in found
    assert "pp2:gpipe" in found


def test_a_sweep_replaces_what_a_layout_says_itself() -> None:
    assert list(layouts_of(["ddp2 mbs8"], ["mbs=2"])) == ["ddp2 mbs2"]


@pytest.mark.parametrize("sweep", ["mbs", "mbs=", "tp=2,4", "=1"])
def test_a_sweep_of_nothing_is_refused_with_examples(sweep: str) -> None:
    with pytest.raises(RequestError, match="mbs=1,2,4"):
        layouts_of(["ddp2"], [sweep])


def test_a_micro_batch_that_is_no_number_is_refused() -> None:
    with pytest.raises(LayoutError):
        layouts_of(["ddp2"], ["mbs=two"])


def test_no_layout_at_all_is_refused() -> None:
    with pytest.raises(LayoutError, match="--layouts"):
        layouts_of(["", " "], [])
