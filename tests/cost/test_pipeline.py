"""The closed forms against published figures, hand calculations and the event simulation of PyTorch's tables."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest

from meshwright.cost.pipeline import (
    Passes,
    awaiting_weight,
    bubble_fraction,
    in_flight,
    pipeline_seconds,
    weight_versions,
)
from meshwright.cost.schedules import V_SHAPED, table, takes
from meshwright.cost.simulate import simulate
from meshwright.spec.layout import SCHEDULES

CODE = {name: code for code, name in enumerate(SCHEDULES)}
EXACT = ("gpipe", "1f1b", "interleaved1f1b", "loopedbfs")
SPLIT = ("interleavedzerobubble", "zbvzerobubble", "dualpipev")


def stages_a_rank(schedule: str) -> tuple[int, ...]:
    return (1,) if schedule in ("gpipe", "1f1b") else (2,) if schedule in V_SHAPED else (1, 2, 3)


def shapes(schedule: str) -> list[tuple[int, int, int]]:
    sizes = product((1, 2, 3, 4, 7), (1, 2, 3, 4, 5, 6, 8, 9, 12, 14, 20), stages_a_rank(schedule))
    return [(p, m, v) for p, m, v in sizes if takes(schedule, p, m)]


@dataclass(frozen=True)
class Case:
    """A pipeline with its seconds, priced both ways."""

    schedule: str
    p: int
    m: int
    v: int
    rank: Passes
    first: Passes
    last: Passes
    send: float

    def closed(self) -> float:
        return pipeline_seconds(
            CODE[self.schedule], self.p, self.m, self.v, self.rank, self.send, self.first, self.last
        )

    def simulated(self) -> float:
        seconds = []
        for name in ("forward", "input_gradient", "weight_gradient"):
            column = [getattr(self.rank, name) / self.v] * (self.p * self.v)
            column[0] += getattr(self.first, name)
            column[-1] += getattr(self.last, name)
            seconds.append(column)
        return simulate(table(self.schedule, self.p, self.m, self.v), *seconds, self.send).makespan_seconds

    def deviation(self) -> float:
        return abs(self.closed() / self.simulated() - 1)


def times(passes: Passes, factor: float) -> Passes:
    return Passes(passes.forward * factor, passes.input_gradient * factor, passes.weight_gradient * factor)


def cases(schedule: str, count: int, first: float = 0.0, last: float = 0.0, few: bool = False) -> list[Case]:
    """Random pipelines; an edge stage takes -0.1 to `first` or `last` times the seconds of a rank more than others."""
    rng = random.Random(schedule)
    found: list[Case] = []
    while len(found) < count:
        p = rng.choice((2, 3, 4, 6, 8, 12, 16))
        m, v = rng.randint(1, 6 * p), rng.choice(stages_a_rank(schedule))
        if not takes(schedule, p, m) or (m < p and not few):
            continue
        rank = Passes(1.0, rng.uniform(0.9, 2.3), rng.uniform(0.7, 1.1))
        edges = (times(rank, rng.uniform(-min(0.1, most), most)) for most in (first, last))
        found.append(Case(schedule, p, m, v, rank, *edges, send=rng.choice((0.0, 0.002, 0.01, 0.05)) / v))
    return found


@pytest.mark.parametrize(("m", "percent"), [(8, 46.7), (32, 17.9), (64, 9.9)])
def test_the_textbook_bubble_on_eight_ranks(m: int, percent: float) -> None:
    # (p-1)/(m+p-1) = 7/15, 7/39, 7/71; arXiv:1811.06965 section 2.3.
    for schedule in ("gpipe", "1f1b"):
        assert 100 * bubble_fraction(CODE[schedule], 8, m) == pytest.approx(percent, abs=0.05)


def test_interleaving_divides_idle_by_ideal_seconds_by_v() -> None:
    # arXiv:2104.04473 section 2.2: idle / ideal = (p-1)/(v*m).
    for v in (1, 2, 4):
        bubble = bubble_fraction(CODE["interleaved1f1b"], 8, 32, v)
        assert bubble / (1 - bubble) == pytest.approx(7 / (v * 32))
        assert bubble == pytest.approx(7 / (v * 32 + 7))


def test_zero_bubble_idle_seconds_are_those_of_the_paper() -> None:
    # arXiv:2401.10241: ZB-H1 idles (p-1)(T_F + T_B - T_W) where 1F1B idles (p-1)(T_F + T_B + T_W).
    rank, p, m = Passes(1.0, 1.4, 0.8), 8, 24
    idle = {s: pipeline_seconds(CODE[s], p, m, 1, rank) - m * rank.total for s in ("1f1b", "interleavedzerobubble")}
    assert idle["1f1b"] == pytest.approx(7 * (1.0 + 1.4 + 0.8))
    assert idle["interleavedzerobubble"] == pytest.approx(7 * (1.0 + 1.4 - 0.8))


def test_zb_v_with_equal_passes_only_fills() -> None:
    # p - 1 half-size passes of 3 * 2 * m.
    assert bubble_fraction(CODE["zbvzerobubble"], 8, 32, 2) == pytest.approx(7 / (6 * 32 + 7))


def test_a_slow_last_stage_paces_1f1b() -> None:
    # Two ranks of 1 + 2 s, a head of 1 + 2 s on the second: 1 + 4 * 6 + 2.
    rank, head, nothing = Passes(1, 1, 1), Passes(1, 1, 1), Passes(0, 0, 0)
    assert pipeline_seconds(CODE["1f1b"], 2, 4, 1, rank, 0.0, nothing, head) == 27


def test_a_lone_micro_batch_pays_every_hop_twice() -> None:
    # Four ranks: 4 * (1 + 2) seconds, three hops down and three up.
    assert pipeline_seconds(CODE["gpipe"], 4, 1, 1, Passes(1, 1, 1), 0.5) == 12 + 6 * 0.5


def test_late_sends_slow_every_round_trip_of_1f1b() -> None:
    # Rank 0 has two micro-batches in flight: each two wait for a trip down and up, 2 * 3 + 2 * 0.5 seconds; the
    # first trip, (m-1) // 2 more, each with two sends.
    assert pipeline_seconds(CODE["1f1b"], 2, 9, 1, Passes(1, 1, 1), 0.5) == (9 + 1) * 3 + 2 * 0.5 * (1 + 4)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_one_rank_has_no_bubble_and_does_all_the_work(schedule: str) -> None:
    v = stages_a_rank(schedule)[-1]
    seconds = pipeline_seconds(CODE[schedule], 1, 6, v, Passes(1, 1, 1), 0.5, Passes(1, 0, 0), Passes(0, 0, 2))
    assert seconds == 6 * (3 + 1 + 2)
    assert bubble_fraction(CODE[schedule], 1, 6, v) == 0


@pytest.mark.parametrize("schedule", EXACT)
def test_even_stages_take_what_the_simulation_takes(schedule: str) -> None:
    assert max(case.deviation() for case in cases(schedule, 60, few=True)) < 1e-9


@pytest.mark.parametrize("schedule", SPLIT)
def test_even_stages_with_split_backwards_are_within_what_is_promised(schedule: str) -> None:
    assert max(case.deviation() for case in cases(schedule, 60)) < 0.015
    assert max(case.deviation() for case in cases(schedule, 60, few=True)) < 0.05


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_uneven_stages_are_within_what_is_promised(schedule: str) -> None:
    limit = {"gpipe": 1e-9, "1f1b": 0.005}.get(schedule, 0.08)
    deviations = [case.deviation() for case in cases(schedule, 100, first=0.1, last=0.3, few=True)]
    assert max(deviations) < limit
    assert np.mean(deviations) < 0.02


def test_a_slow_head_alone_is_exact_under_interleaved_1f1b() -> None:
    heavier = [case for case in cases("interleaved1f1b", 60, last=0.3, few=True) if case.last.forward > 0]
    assert max(case.deviation() for case in heavier) < 1e-9


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_activations_in_flight_are_those_of_the_table(schedule: str) -> None:
    code = CODE[schedule]
    for p, m, v in shapes(schedule):
        ones = [1.0] * (p * v)
        run = simulate(table(schedule, p, m, v), ones, ones, ones)
        ranks = np.arange(p)
        held = v * in_flight(code, p, m, v, ranks)
        assert held == pytest.approx(run.in_flight), (p, m, v)
        without = held - v * awaiting_weight(code, p, m, v, ranks)
        assert without == pytest.approx(run.in_flight_until_input_gradient), (p, m, v)


def test_the_first_rank_under_interleaving_holds_the_published_share() -> None:
    # arXiv:2205.05198 section 4.2.3: L layers' worth on p ranks times 1 + (p-1)/(p*v), that is p + (p-1)/v of its own.
    for p, v in ((4, 2), (8, 3)):
        assert in_flight(CODE["interleaved1f1b"], p, 4 * p, v, 0) == pytest.approx(p * (1 + (p - 1) / (p * v)))


def test_gpipe_holds_every_micro_batch_and_1f1b_at_most_one_a_rank() -> None:
    assert in_flight(CODE["gpipe"], 4, 32, 1, 0) == 32
    assert list(in_flight(CODE["1f1b"], 4, 32, 1, np.arange(4))) == [4, 3, 2, 1]


def test_pipedream_keeps_as_many_weight_versions_as_stages_behind() -> None:
    # arXiv:1806.03377 section 3.3: four workers keep 4, 3, 2 and 1.
    assert list(weight_versions(4, np.arange(4))) == [4, 3, 2, 1]


def test_columns_of_mixed_schedules_equal_the_rows_one_by_one() -> None:
    rng = np.random.default_rng(0)
    n = 200
    code = rng.integers(0, len(SCHEDULES), n)
    p, m = rng.integers(1, 9, n), rng.integers(1, 33, n)
    v = np.array([rng.choice(stages_a_rank(SCHEDULES[k])) for k in code])
    rank, first, last = (
        Passes(*(rng.uniform(low, high, n) for _ in range(3))) for low, high in ((1, 2), (0, 0.2), (0, 1))
    )
    send = rng.uniform(0, 0.05, n)

    def at(passes: Passes, k: int) -> Passes:
        return Passes(passes.forward[k], passes.input_gradient[k], passes.weight_gradient[k])

    seconds = pipeline_seconds(code, p, m, v, rank, send, first, last)
    held = in_flight(code, p, m, v, p - 1)
    for k in range(n):
        row = int(code[k]), int(p[k]), int(m[k]), int(v[k])
        assert seconds[k] == pytest.approx(pipeline_seconds(*row, at(rank, k), send[k], at(first, k), at(last, k)))
        assert held[k] == in_flight(*row, row[1] - 1)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_more_micro_batches_shrink_the_bubble(schedule: str) -> None:
    m = 8 * np.arange(2, 12)
    bubbles = bubble_fraction(CODE[schedule], 8, m, stages_a_rank(schedule)[-1])
    assert np.all(np.diff(bubbles) < 0)
    assert np.all((bubbles > 0) & (bubbles < 1))
