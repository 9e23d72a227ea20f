"""The fit finds the alpha and beta that made-up times were made of, and says honestly how far off it is."""

from __future__ import annotations

import math

import numpy as np
import pytest

from meshwright.bench.comms.fit import fit_tiers, least_log, priced_seconds
from meshwright.spec.collective import Line, Row

SIZES = [2**power for power in range(3, 27)]
ALPHA, BETA, OVERHEAD = 7e-6, 40e9, 20e-6


def intra(ranks: int) -> Line:
    return Line(f"{ranks} ranks", ranks, 1, 1, "intra")


def ring_seconds(operation: str, size: int, ranks: int, alpha: float, beta: float, overhead: float) -> float:
    """The textbook's times on one tier (Thakur et al. 2005), written down again."""
    share = (ranks - 1) / ranks * size / beta
    return {
        "all-reduce": 2 * share + 2 * (ranks - 1) * alpha + overhead,
        "all-gather": share + (ranks - 1) * alpha + overhead,
        "reduce-scatter": share + (ranks - 1) * alpha + overhead,
        "all-to-all": share + 2 * alpha + overhead,
        "send/recv": size / beta + alpha + overhead,
    }[operation]


def made_up(line: Line, operations: list[str], alpha: float, beta: float, overhead: float) -> list[Row]:
    return [
        Row(line, name, size, 10, ring_seconds(name, size, line.ranks, alpha, beta, overhead))
        for name in operations
        for size in SIZES
    ]


EVERY = ["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "send/recv"]


def test_the_numbers_that_times_were_made_of_are_found() -> None:
    (found,) = fit_tiers(made_up(intra(8), EVERY, ALPHA, BETA, OVERHEAD), 8)
    assert found.tier == "intra"
    assert found.latency_s == pytest.approx(ALPHA, rel=1e-3)
    assert found.bytes_per_s == pytest.approx(BETA, rel=1e-3)
    assert found.overhead_s == pytest.approx(OVERHEAD, rel=1e-3)
    assert found.worst_error < 1e-3
    assert found.points == len(EVERY) * len(SIZES)


def test_noise_and_some_broken_rows_hardly_move_them() -> None:
    random = np.random.default_rng(0)
    rows = made_up(intra(8), EVERY, ALPHA, BETA, OVERHEAD)
    noisy = [
        Row(
            r.line,
            r.operation,
            r.bytes,
            10,
            (r.seconds or 0.0) * math.exp(random.normal(0, 0.1)) * (10 if i % 17 == 0 else 1),
        )
        for i, r in enumerate(rows)
    ]
    (found,) = fit_tiers(noisy, 8)
    assert found.latency_s == pytest.approx(ALPHA, rel=0.2)
    assert found.bytes_per_s == pytest.approx(BETA, rel=0.1)
    assert 0.02 < found.median_error < 0.2
    assert found.worst_error > 0.5  # a tenfold time is told ten times too low


def test_one_operation_alone_gives_the_time_that_it_shows() -> None:
    """Hops and overhead cannot be told apart then; together they must still be right."""
    (found,) = fit_tiers(made_up(intra(8), ["all-reduce"], ALPHA, BETA, OVERHEAD), 8)
    assert found.bytes_per_s == pytest.approx(BETA, rel=1e-3)
    assert 14 * found.latency_s + found.overhead_s == pytest.approx(14 * ALPHA + OVERHEAD, rel=1e-3)
    assert found.worst_error < 1e-3


def test_groups_between_nodes_share_a_nodes_bandwidth() -> None:
    """2 nodes of 4: each of 4 groups of 2 gets a quarter of the node's 10 GB/s."""
    line = Line("between nodes", 2, 4, 2, "inter")
    rows = made_up(line, ["all-gather", "all-reduce"], 30e-6, 2.5e9, 0.0)
    (found,) = fit_tiers(rows, 4)
    assert found.tier == "inter"
    assert found.bytes_per_s == pytest.approx(10e9, rel=1e-3)
    assert found.latency_s == pytest.approx(30e-6, rel=1e-3)


def test_links_inside_a_node_are_known_when_those_between_are_fitted() -> None:
    inside = made_up(intra(4), EVERY, ALPHA, BETA, OVERHEAD)
    line = Line("all ranks", 8, 1, 2, "inter")
    slow, far = 5e9, 25e-6
    # A ring over 2 nodes of 4: 6 hops inside, 1 between; the slower link carries 7/8 of the bytes.
    across = [Row(line, "all-gather", size, 10, 7 / 8 * size / slow + 6 * ALPHA + far + OVERHEAD) for size in SIZES]
    near, found = fit_tiers([*inside, *across], 4)
    assert near.tier == "intra"
    assert found.bytes_per_s == pytest.approx(slow, rel=1e-2)
    assert found.latency_s == pytest.approx(far, rel=1e-2)
    assert found.overhead_s == near.overhead_s
    told = priced_seconds(across[-1], (near, found), 4)
    assert told == pytest.approx(across[-1].seconds, rel=1e-2)


def test_broadcasts_and_rows_without_a_time_are_passed_over() -> None:
    rows = [Row(intra(4), "broadcast", 64, 10, 1.0), Row(intra(4), "all-to-all", 64, note="the backend has none")]
    assert fit_tiers(rows, 4) == ()
    assert priced_seconds(rows[0], (), 4) is None


def test_no_number_is_below_zero() -> None:
    # Times that fall with the size: a straight line through them would need a bandwidth below zero.
    rows = [Row(intra(2), "send/recv", size, 10, 1e-4 / (1 + i)) for i, size in enumerate(SIZES)]
    (found,) = fit_tiers(rows, 2)
    assert found.latency_s >= 0
    assert found.overhead_s >= 0
    assert found.bytes_per_s > 0


def test_the_middle_of_three_is_told() -> None:
    # Of one number and the times 1, 2 and 10 the median is best, where least squares say 4.33.
    found = least_log(np.ones((3, 1)), np.array([1.0, 2.0, 10.0]), np.zeros(3), np.ones(3))
    assert found[0] == pytest.approx(2.0, rel=1e-2)
    # A weight of 3 on the last makes it the median.
    found = least_log(np.ones((3, 1)), np.array([1.0, 2.0, 10.0]), np.zeros(3), np.array([1.0, 1.0, 3.0]))
    assert found[0] == pytest.approx(10.0, rel=1e-2)


def test_twice_as_long_counts_like_half_as_long() -> None:
    """Between as many times of 1 and of 4 nothing is better than anything else; relative errors would choose 1."""
    times = np.array([1.0, 1.0, 4.0, 4.0, 4.0])
    assert least_log(np.ones((5, 1)), times, np.zeros(5), np.ones(5))[0] == pytest.approx(4.0, rel=1e-2)


def test_messages_too_small_to_tell_a_bandwidth_give_the_most_that_they_reached() -> None:
    rows = [Row(intra(2), "send/recv", size, 10, 1e-4) for size in (8, 16, 32)]
    (found,) = fit_tiers(rows, 2)
    assert not found.bandwidth_seen
    assert found.bytes_per_s == pytest.approx(32 / 1e-4)
    (found,) = fit_tiers(made_up(intra(8), EVERY, ALPHA, BETA, OVERHEAD), 8)
    assert found.bandwidth_seen


def test_a_ring_of_messages_that_mostly_stay_inside_nodes_tells_nothing_of_the_link_between() -> None:
    ring = [Row(Line("all ranks", 4, 1, 2, "inter"), "send/recv", size, 10, 1e-3) for size in SIZES]
    assert fit_tiers(ring, 2) == ()
    apart = [Row(Line("between nodes", 2, 1, 2, "inter"), "send/recv", r.bytes, 10, 1e-5 + r.bytes / 1e9) for r in ring]
    (found,) = fit_tiers([*ring, *apart], 1)
    assert found.bytes_per_s == pytest.approx(1e9, rel=1e-3)
