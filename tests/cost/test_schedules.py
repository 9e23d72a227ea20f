"""Schedule tables against PyTorch: always against tables that it wrote, and against itself where it is installed."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.cost.schedules import (
    V_SHAPED,
    Action,
    Pair,
    check_table,
    format_table,
    parse_cell,
    parse_table,
    parts,
    peak_held,
    placement,
    stage_ranks,
    table,
    takes,
)
from meshwright.spec.errors import LayoutError
from meshwright.spec.layout import SCHEDULES

# Written by torch 2.13: the multi-stage classes' _dump_csv(format="compute_only"), empty cells included; for gpipe and
# 1f1b the order in which _step_microbatches calls the stage.
TABLES = sorted(Path(__file__).with_name("schedule_tables").glob("*.csv"))


def stages_a_rank(schedule: str) -> tuple[int, ...]:
    return (1,) if schedule in ("gpipe", "1f1b") else (2,) if schedule in V_SHAPED else (1, 2, 3)


def legal(schedule: str) -> list[tuple[int, int, int]]:
    sizes = product((1, 2, 3, 4, 6), (1, 2, 3, 5, 8, 9, 12, 16), stages_a_rank(schedule))
    return [(p, m, v) for p, m, v in sizes if takes(schedule, p, m)]


def numbers(name: str) -> tuple[str, int, int, int]:
    schedule, p, m, v = name.split("-")
    return schedule, int(p[1:]), int(m[1:]), int(v[1:])


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_tables_are_those_that_pytorch_wrote(path: Path) -> None:
    assert table(*numbers(path.stem)) == parse_table(path.read_text())


def test_every_schedule_has_a_table_that_pytorch_wrote() -> None:
    assert {numbers(path.stem)[0] for path in TABLES} == set(SCHEDULES)


def test_1f1b_rank_0_of_four_runs_as_in_the_paper() -> None:
    # arXiv:2104.04473 figure 4, device 1: four forwards, then backward and forward in turn.
    order = "0F0 0F1 0F2 0F3 0B0 0F4 0B1 0F5 0B2 0F6 0B3 0F7 0B4 0B5 0B6 0B7"
    assert " ".join(map(str, table("1f1b", 4, 8)[0])) == order


def test_interleaved_last_rank_starts_its_second_stage_after_p_micro_batches() -> None:
    # arXiv:2104.04473 figure 4 below, device 4 of 4 with two stages: light 1-4, dark 1, then its backward.
    row = table("interleaved1f1b", 4, 8, 2)[3]
    assert " ".join(map(str, row[:8])) == "3F0 3F1 3F2 3F3 7F0 7B0 7F1 7B1"


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_stage_runs_every_micro_batch_forward_and_backward_once(schedule: str) -> None:
    for p, m, v in legal(schedule):
        rows = table(schedule, p, m, v)
        check_table(rows)
        actions = [action for row in rows for cell in row for action in parts(cell)]
        everything = sorted(product(range(p * v), range(m)))
        assert sorted((a.stage, a.micro_batch) for a in actions if a.kind == "F") == everything
        assert sorted((a.stage, a.micro_batch) for a in actions if a.kind in "BW") == everything
        assert stage_ranks(rows) == placement(schedule, p, v)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_written_table_reads_back_the_same(schedule: str) -> None:
    for p, m, v in legal(schedule):
        rows = table(schedule, p, m, v)
        assert parse_table(format_table(rows)) == rows


def test_looped_stages_go_round_and_v_shaped_ones_turn_back() -> None:
    assert placement("interleaved1f1b", 3, 2) == [0, 1, 2, 0, 1, 2]
    assert placement("zbvzerobubble", 3, 2) == [0, 1, 2, 2, 1, 0]


@pytest.mark.parametrize(
    ("schedule", "p", "m", "v", "nearest"),
    [
        ("1f1b", 4, 3, 1, ("4",)),
        ("dualpipev", 4, 7, 2, ("8",)),
        ("interleaved1f1b", 4, 9, 2, ("8", "10")),
        ("interleavedzerobubble", 4, 17, 2, ("16", "20")),
        ("gpipe", 4, 0, 1, ("1",)),
        ("loopedbfs", 4, -3, 2, ("1",)),
        ("zbvzerobubble", 4, 8, 3, ("2",)),
        ("1f1b", 4, 8, 2, ("1",)),
        ("interleaved1f1b", 4, 8, 0, ("1 or more",)),
        ("gpipe", 0, 8, 1, ("1",)),
        ("1f1f", 4, 8, 1, ("1f1b",)),
    ],
)
def test_what_pytorch_refuses_is_refused_with_the_nearest_legal_values(
    schedule: str, p: int, m: int, v: int, nearest: tuple[str, ...]
) -> None:
    with pytest.raises(LayoutError) as error:
        table(schedule, p, m, v)
    assert error.value.legal[: len(nearest)] == nearest


def test_cells_are_written_as_in_pytorch() -> None:
    assert parse_cell(" 12I34 ") == Action(12, "I", 34)
    assert parse_cell("(0F5;5B2)OVERLAP_F_B") == Pair(Action(0, "F", 5), Action(5, "B", 2))
    assert str(Pair(Action(0, "F", 5), Action(5, "B", 2))) == "(0F5;5B2)OVERLAP_F_B"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("9" * 5000 + "F0", "is no compute action"),
        ("0F0" * 50_000, "field larger than field limit"),
        ("999999999F0,999999999B0", "no rank computes stage 0"),
        ("0F0,0B0\n1F0,1X0", "row 2 (rank 1), column 2: '1X0'"),
        ("0F0,0SEND_F0,0B0", "row 1 (rank 0), column 2: '0SEND_F0'"),
        ("0F,0B0", "'0F'"),
        ("0F0,0B0extra", "'0B0extra'"),
        ("-1F0,0B0", "'-1F0'"),
        ("(0F0;1F0)OVERLAP_F_B", "overlapped pair"),
        ("(0F0)OVERLAP_F_B", "is no compute action"),
        ("", "no ranks"),
        ("0F0,0B0\n,", "rank 1 computes nothing"),
        ("0B0,0F0", "0B0 before 0F0"),
        ("0F0,0W0,0I0", "0W0 before 0I0"),
        ("0F0,0F0,0B0", "0F0 twice"),
        ("0F0,0I0,0B0,0W0", "both 0I0 and 0B0"),
        ("0F0,0B0,0F1", "stage 0 has 2 forwards and 1 complete backwards"),
        ("0F1,0B1", "micro-batches [1] are not 0, 1, 2"),
        ("0F0,0B0\n0F1,0B1", "stage 0 is on rank 0 and on rank 1"),
        ("0F0,0B0\n2F0,2B0", "no rank computes stage 1"),
        ("0F0,0B0,0F1,0B1\n1F0,1B0", "stage 1 has 1 forwards"),
    ],
)
def test_a_bad_table_is_refused_with_the_place(text: str, says: str) -> None:
    with pytest.raises(LayoutError) as error:
        parse_table(text)
    assert says in str(error.value)


@given(st.text(alphabet="0123456789FBIWOVERLAP_();,\n\"' -", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        rows = parse_table(text)
    except LayoutError:
        return
    assert parse_table(format_table(rows)) == rows


def test_activations_end_with_the_input_gradient_and_their_rest_with_the_weight_gradient() -> None:
    row = [parse_cell(text) for text in "0F0 0F1 0I0 0F2 0I1 0W0 0I2 0W1 0W2".split()]
    # Held: 10, 20, 13, 23 (the peak), 16, 13, 6, …
    assert peak_held(row, [10.0], [3.0]) == 23.0


class Recorder:
    """Stands for a PipelineStage; notes what it is told to compute."""

    submod = None
    group = None

    def __init__(self, stage: int, p: int, stages: int, rank: int = 0) -> None:
        self.stage_index, self.num_stages, self.group_size, self.group_rank = stage, stages, p, rank
        self.is_first, self.is_last, self.has_backward = stage == 0, stage == stages - 1, True
        self.seen: list[str] = []

    def no_messages(self, micro_batch: int) -> list[object]:
        return []

    get_fwd_recv_ops = get_fwd_send_ops = get_bwd_recv_ops = get_bwd_send_ops = no_messages

    def forward_one_chunk(self, i: int, *args: object, **kwargs: object) -> None:
        self.seen.append(f"{self.stage_index}F{i}")

    def backward_one_chunk(self, i: int, *args: object, **kwargs: object) -> None:
        self.seen.append(f"{self.stage_index}B{i}")

    def perform_reduce_grad(self, *args: object) -> None:
        pass


def torch_class(schedule: str) -> type:
    pipelining = pytest.importorskip("torch.distributed.pipelining.schedules")
    return pipelining.get_schedule_class(schedule)


def torch_rows(schedule: str, p: int, m: int, v: int) -> list[list[str]]:
    """What PyTorch's class computes; ValueError where it refuses."""
    made = torch_class(schedule)
    if schedule not in ("gpipe", "1f1b"):
        order = made([Recorder(i, p, p * v) for i in range(v)], m).pipeline_order
        return [[str(action) for action in order[rank] if action is not None] for rank in range(p)]
    rows = []
    for rank in range(p):
        stage = Recorder(rank, p, p, rank)
        run = made(stage, m)
        run._initialize_stage = lambda *args, **kwargs: None
        run._step_microbatches([()] * m, [{}] * m)
        rows.append(stage.seen)
    return rows


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_pytorch_computes_in_this_order_or_refuses_too(schedule: str) -> None:
    torch_class(schedule)
    compared = 0
    for p, m, v in product((1, 2, 3, 4, 5, 8), (*range(1, 10), 13, 16), stages_a_rank(schedule)):
        if takes(schedule, p, m):
            ours = [[str(cell) for cell in row] for row in table(schedule, p, m, v)]
            assert ours == torch_rows(schedule, p, m, v), (p, m, v)
            compared += 1
        else:
            with pytest.raises(ValueError, match=r"(?i)microbatches"):
                torch_rows(schedule, p, m, v)
    assert compared >= 24


@pytest.mark.parametrize("schedule", [s for s in SCHEDULES if s not in ("gpipe", "1f1b")])
def test_pytorch_reads_a_written_table(schedule: str, tmp_path: Path) -> None:
    pipelining = pytest.importorskip("torch.distributed.pipelining.schedules")
    rows = table(schedule, 4, 8, 2)
    path = tmp_path / "table.csv"
    path.write_text(format_table(rows))
    runtime = pipelining._PipelineScheduleRuntime([Recorder(i, 4, 8) for i in range(2)], 8)
    runtime._load_csv(str(path), format="compute_only")
    assert [[str(action) for action in runtime.pipeline_order[rank]] for rank in range(4)] == [
        [str(cell) for cell in row] for row in rows
    ]
