"""Sizes and bandwidths are nccl-tests': factors by hand, messages of whole elements on every rank."""

from __future__ import annotations

import pytest

from meshwright.bench.comms.operations import message_bytes, sizes
from meshwright.spec.collective import OPERATIONS, Line, Row, bus_factor

FOUR = Line("all ranks", 4, 1, 1, "intra")


@pytest.mark.parametrize(
    ("operation", "factor"),
    [
        ("all-reduce", 1.5),  # 2·3/4
        ("all-gather", 0.75),
        ("reduce-scatter", 0.75),
        ("all-to-all", 0.75),
        ("broadcast", 1.0),
        ("send/recv", 1.0),
    ],
)
def test_four_ranks_have_the_bus_factors_of_nccl_tests(operation: str, factor: float) -> None:
    assert bus_factor(operation, 4) == factor
    row = Row(FOUR, operation, 4_000_000, 10, 1e-3, 2e-3)
    assert row.algorithm_bytes_per_s == pytest.approx(4e9)
    assert row.bus_bytes_per_s == pytest.approx(4e9 * factor)


def test_a_published_line_has_its_published_bus_bandwidth() -> None:
    # nccl-tests on 8 H100 (MLPerf training 4.0): 704,643,072 bytes in 2693.8 us: algbw 261.58, busbw 457.77 GB/s.
    row = Row(Line("all", 8, 1, 1, "intra"), "all-reduce", 704_643_072, 20, 2693.8e-6)
    assert row.algorithm_bytes_per_s == pytest.approx(261.58e9, rel=1e-4)
    assert row.bus_bytes_per_s == pytest.approx(457.77e9, rel=1e-4)


def test_an_unknown_operation_has_no_factor() -> None:
    with pytest.raises(ValueError, match="gather-all"):
        bus_factor("gather-all", 4)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("ranks", [2, 3, 4, 7])
@pytest.mark.parametrize("wanted", [1, 8, 100, 2**20])
def test_every_rank_has_as_many_whole_elements(operation: str, ranks: int, wanted: int) -> None:
    size = message_bytes(operation, wanted, ranks)
    parts = ranks if operation in ("all-gather", "reduce-scatter", "all-to-all") else 1
    assert size >= wanted
    assert size % (4 * parts) == 0
    assert size - wanted < 4 * parts


def test_sizes_double_from_the_least_to_the_most() -> None:
    assert sizes(8, 64) == [8, 16, 32, 64]
    assert sizes(8, 63) == [8, 16, 32]
    assert len(sizes(8, 2**30)) == 28


def test_a_row_without_a_time_has_no_bandwidth() -> None:
    row = Row(FOUR, "all-to-all", 8, note="the backend has none")
    assert row.algorithm_bytes_per_s is None
    assert row.bus_bytes_per_s is None
