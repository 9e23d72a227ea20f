"""The event simulation against hand-drawn time lines, known bubbles, and a second way to compute the longest path."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from meshwright.cost.schedules import Pair, Table, parse_cell, placement, table
from meshwright.cost.simulate import Simulation, simulate
from meshwright.spec.errors import LayoutError
from meshwright.spec.layout import SCHEDULES

SHAPES = [
    ("gpipe", 3, 5, 1),
    ("1f1b", 4, 7, 1),
    ("interleaved1f1b", 4, 8, 2),
    ("interleaved1f1b", 4, 6, 3),
    ("interleaved1f1b", 4, 3, 2),
    ("loopedbfs", 3, 4, 2),
    ("interleavedzerobubble", 4, 8, 2),
    ("interleavedzerobubble", 3, 6, 1),
    ("zbvzerobubble", 4, 8, 2),
    ("zbvzerobubble", 4, 3, 2),
    ("dualpipev", 4, 9, 2),
]


def rows(*texts: str) -> Table:
    return [[parse_cell(cell) for cell in text.split()] for text in texts]


def even(schedule: str, p: int, m: int, v: int, f: float, i: float, w: float, send: float = 0.0) -> Simulation:
    n = p * v
    return simulate(table(schedule, p, m, v), [f] * n, [i] * n, [w] * n, send)


def test_gpipe_on_two_ranks_as_drawn_by_hand() -> None:
    # Forward 1 s, backward 2 s:
    #   rank 0: F0 F1 .  .  .  B0 B0 B1 B1
    #   rank 1: .  F0 F1 B0 B0 B1 B1
    run = simulate(table("gpipe", 2, 2), [1, 1], [1, 1], [1, 1])
    assert run.starts == [[0, 1, 5, 7], [1, 2, 3, 5]]
    assert run.ends == [[1, 2, 7, 9], [2, 3, 5, 7]]
    assert run.makespan_seconds == 9
    assert run.busy_seconds == [6, 6]
    assert run.idle_seconds == [3, 3]
    assert run.bubble == pytest.approx(1 / 3)


def test_uneven_1f1b_on_two_ranks_as_drawn_by_hand() -> None:
    # Rank 1 takes twice as long and never waits once it has begun: 1 + 3 * (2 + 4) + 2.
    run = simulate(table("1f1b", 2, 3), [1, 2], [1, 2], [1, 2])
    assert run.makespan_seconds == 21
    assert run.starts[1] == [1, 3, 7, 9, 13, 15]


def test_each_hop_between_ranks_delays_a_lone_micro_batch_by_one_send() -> None:
    # 4 forwards of 1 s, 4 backwards of 3 s, 3 hops down, 3 hops up.
    assert even("gpipe", 4, 1, 1, 1, 2, 1, send=0.25).makespan_seconds == 16 + 6 * 0.25


def test_the_turn_of_a_v_sends_nothing() -> None:
    # Stages 0 1 | 1 0: of three boundaries each way, the middle one stays on its rank. The last weight gradient
    # of stage 0 comes after its input gradient.
    assert even("zbvzerobubble", 2, 1, 2, 1, 1, 1, send=0.25).makespan_seconds == pytest.approx(4 + 4 + 4 * 0.25 + 2)


def test_the_results_of_a_pair_leave_together() -> None:
    #   rank 0: 0F0 .   .   3F0 0F1 3B0 3B0 .   .   3F1 …     the pair is 0F1 and 3B0
    #   rank 1: .   1F0 2F0 .   .   .   .   1F1 2F1           1F1 waits for the whole pair
    table = rows("0F0 3F0 (0F1;3B0)OVERLAP_F_B 3F1 3B1 0B0 0B1", "1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1")
    run = simulate(table, [1] * 4, [1] * 4, [1] * 4)
    assert run.starts[0][2:5] == [4, 5, 9]
    assert run.starts[1][2:4] == [7, 8]


@pytest.mark.parametrize(("m", "percent"), [(8, 46.7), (32, 17.9), (64, 9.9)])
def test_1f1b_and_gpipe_on_eight_ranks_have_the_textbook_bubble(m: int, percent: float) -> None:
    # (p-1)/(m+p-1), arXiv:1811.06965 section 2.3.
    for schedule in ("gpipe", "1f1b"):
        assert 100 * even(schedule, 8, m, 1, 1.0, 1.0, 1.0).bubble == pytest.approx(percent, abs=0.05)


def test_interleaving_v_stages_divides_the_idle_time_by_v() -> None:
    # arXiv:2104.04473 section 2.2; the same model, cut in v times as many stages.
    idle = [even("interleaved1f1b", 4, 8, v, 1 / v, 1 / v, 1 / v).idle_seconds[0] for v in (1, 2, 4)]
    assert idle == pytest.approx([9.0, 4.5, 2.25])


def test_zb_v_is_idle_only_while_the_pipeline_fills_if_the_passes_are_equal() -> None:
    # arXiv:2401.10241 section 6: nothing but the fill of p - 1 passes remains.
    run = even("zbvzerobubble", 4, 16, 2, 1, 1, 1)
    assert run.idle_seconds == [3, 3, 3, 3]


def test_zb_h1_hides_all_but_the_difference_of_forward_and_weight_gradient() -> None:
    # arXiv:2401.10241: (p-1)(T_F + T_B - T_W).
    run = even("interleavedzerobubble", 4, 12, 1, 1.0, 1.5, 0.75)
    assert run.idle_seconds[0] == pytest.approx(3 * (1.0 + 1.5 - 0.75))


def relaxed_starts(run: Simulation, seconds: dict[str, Sequence[float]], send: float) -> list[list[float]]:
    """The earliest starts by relaxation: raise each start to what it waits for until nothing changes."""
    where = {tuple(action): (r, k) for r, row in enumerate(run.actions) for k, action in enumerate(row)}
    leaves_with = dict(where)
    for cell in (cell for row in run.table for cell in row if isinstance(cell, Pair)):
        leaves_with[tuple(cell.forward)] = where[tuple(cell.backward)]
    starts = [[0.0] * len(row) for row in run.actions]
    last = len(run.stage_ranks) - 1

    def end(rank: int, k: int) -> float:
        action = run.actions[rank][k]
        return starts[rank][k] + seconds[action.kind][action.stage]

    def earliest(rank: int, k: int) -> float:
        stage, kind, i = run.actions[rank][k]
        if kind == "F":
            sources = [(stage - 1, "F", i)]
        elif kind == "W":
            sources = [(stage, "I", i)]
        else:
            sources = [(stage + 1, "B", i), (stage + 1, "I", i)] if stage < last else [(stage, "F", i)]
        found = [leaves_with[source] for source in sources if source in where]
        arrivals = [end(*at) + (send if at[0] != rank else 0.0) for at in found]
        return max([0.0, *arrivals, *([end(rank, k - 1)] if k else [])])

    changed = True
    while changed:
        changed = False
        for rank, row in enumerate(run.actions):
            for k in range(len(row)):
                value = earliest(rank, k)
                changed |= value > starts[rank][k] + 1e-12
                starts[rank][k] = max(starts[rank][k], value)
    return starts


@pytest.mark.parametrize(("schedule", "p", "m", "v"), SHAPES)
def test_every_action_starts_as_soon_as_its_rank_and_its_input_allow(schedule: str, p: int, m: int, v: int) -> None:
    rng = random.Random(f"{schedule} {p} {m} {v}")
    f, i, w = ([rng.uniform(0.5, 2.0) for _ in range(p * v)] for _ in range(3))
    run = simulate(table(schedule, p, m, v), f, i, w, send_seconds=0.3)
    seconds = {"F": f, "I": i, "W": w, "B": [a + b for a, b in zip(i, w, strict=True)]}
    expected = relaxed_starts(run, seconds, 0.3)
    for got, want in zip(run.starts, expected, strict=True):
        assert got == pytest.approx(want)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_slower_sends_and_slower_stages_never_shorten_a_step(schedule: str) -> None:
    v = 1 if schedule in ("gpipe", "1f1b") else 2
    rng = random.Random(schedule)
    before = even(schedule, 4, 8, v, 1.0, 1.2, 0.8).makespan_seconds
    for _ in range(5):
        f, i, w = ([base + rng.random() for _ in range(4 * v)] for base in (1.0, 1.2, 0.8))
        unsent = simulate(table(schedule, 4, 8, v), f, i, w).makespan_seconds
        assert before <= unsent <= simulate(table(schedule, 4, 8, v), f, i, w, 0.1).makespan_seconds


def test_a_deadlock_names_each_rank_its_action_and_what_it_waits_for() -> None:
    # Rank 0 wants the gradient of micro-batch 1 before it has sent micro-batch 1 on.
    stuck = rows("0F0 0B1 0F1 0B0", "1F0 1B0 1F1 1B1")
    with pytest.raises(LayoutError) as error:
        simulate(stuck, [1, 1], [1, 1], [1, 1])
    assert "rank 0 waits at action 2 of its row, 0B1, for 1B1" in str(error.value)
    assert "rank 1 waits at action 3 of its row, 1F1, for 0F1" in str(error.value)


def test_a_backward_before_its_own_forward_is_a_deadlock() -> None:
    with pytest.raises(LayoutError, match="rank 1 waits at action 1 of its row, 1B0, for 1F0; rank 1 never"):
        simulate(rows("0F0 0B0", "1B0 1F0"), [1, 1], [1, 1], [1, 1])


def test_an_action_that_nobody_computes_is_named() -> None:
    with pytest.raises(LayoutError, match="rank 1 waits at action 2 of its row, 1F1, for 0F1; rank 0 never"):
        simulate(rows("0F0", "1F0 1F1"), [1, 1], [1, 1], [1, 1])


def test_seconds_for_another_number_of_stages_are_refused() -> None:
    with pytest.raises(LayoutError, match="the schedule has 4 stages, but input_gradient has seconds for 2"):
        simulate(table("gpipe", 4, 4), [1] * 4, [1] * 2, [1] * 4)


def test_activations_in_flight_fall_from_the_first_rank_to_the_last_under_1f1b() -> None:
    run = even("1f1b", 4, 8, 1, 1, 1, 1)
    assert run.in_flight == run.in_flight_until_input_gradient == run.in_flight_by_stage == [4, 3, 2, 1]


def test_interleaved_1f1b_holds_the_published_number_of_stage_activations() -> None:
    # arXiv:2205.05198 section 4.2.3: p * v * (1 + (p-1)/(p*v)) on the first rank; 4 * 2 * (1 + 3/8) = 11.
    run = even("interleaved1f1b", 4, 8, 2, 1, 1, 1)
    assert run.in_flight == [11, 9, 7, 5]
    # Rank 3: stage 7, the last, turns back at once; stage 3 takes a fifth micro-batch before its first backward.
    assert (run.in_flight_by_stage[3], run.in_flight_by_stage[7]) == (5, 1)


def test_zb_v_holds_the_same_on_every_rank() -> None:
    # arXiv:2401.10241 section 6: 2p half-size stages, as much as the first rank under 1F1B.
    run = even("zbvzerobubble", 4, 16, 2, 1, 1, 1)
    assert run.in_flight == [8, 8, 8, 8]
    assert run.stage_ranks == placement("zbvzerobubble", 4, 2)


def test_zero_bubble_puts_off_one_weight_gradient_a_rank_more() -> None:
    run = even("interleavedzerobubble", 4, 8, 1, 1, 1, 1)
    assert run.in_flight_until_input_gradient == [4, 3, 2, 1]
    assert run.in_flight == [4, 4, 4, 4]
