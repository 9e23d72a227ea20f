"""Ranks get the numbers that were sent, and a wrong one is seen on every rank."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

from meshwright.bench.comms import messages
from meshwright.bench.comms.lines import lines_of_layout, lines_of_nodes
from meshwright.bench.comms.measure import Effort, WrongDataError, measure
from meshwright.bench.comms.messages import Message, expected_of, make_message, pattern
from meshwright.spec.collective import OPERATIONS, Line, Row
from meshwright.spec.notation import parse_layout
from meshwright.train.launch.pool import RankPool

CPU = torch.device("cpu")
QUICK = Effort(0.0, 3)


def test_what_is_expected_is_what_the_definitions_say() -> None:
    mine = [pattern(rank, 8, CPU) for rank in range(2)]
    assert torch.equal(expected_of("all-reduce", 1, 2, 8, CPU), mine[0] + mine[1])
    assert torch.equal(expected_of("reduce-scatter", 1, 2, 4, CPU), (mine[0] + mine[1])[4:])
    assert torch.equal(expected_of("all-gather", 0, 2, 16, CPU), torch.cat(mine))
    assert torch.equal(expected_of("all-to-all", 1, 2, 8, CPU), torch.cat([mine[0][4:], mine[1][4:]]))
    assert torch.equal(expected_of("broadcast", 1, 2, 8, CPU), mine[0])
    assert torch.equal(expected_of("send/recv", 0, 2, 8, CPU), mine[1])


def _check_all(sizes: list[int]) -> dict[str, str]:
    found = {}
    for operation in OPERATIONS:
        for size in sizes:
            message = make_message(operation, size, dist.group.WORLD, CPU)  # type: ignore[arg-type]
            message.fill()
            message.run()
            found[f"{operation} {size}"] = message.arrived()
    return found


def test_gloo_delivers_every_operation(ranks: RankPool) -> None:
    for found in ranks.run(_check_all, [48, 4800], world=3):
        assert set(found.values()) == {""}


def _corrupted(operation: str) -> str:
    """One rank's outcome has a wrong number."""
    run = messages._RUN[operation]

    def wrong(message: Message) -> None:
        run(message)
        if dist.get_rank() == 1:
            message.received[3] += 1

    messages._RUN[operation] = wrong
    try:
        measure(lines_of_nodes([0, 0]), [operation], [64], QUICK, CPU)
    except WrongDataError as error:
        return str(error)
    finally:
        messages._RUN[operation] = run
    return ""


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_wrong_number_on_one_rank_is_told_on_all(ranks: RankPool, operation: str) -> None:
    first, second = ranks.run(_corrupted, operation, world=2)
    assert first == second
    assert first.startswith(f"rank 1: {operation} of ")
    assert "element 3" in first
    assert "1 elements are wrong" in first


def _refusing(error: str) -> list[Row]:
    def refuse(message: Message) -> None:
        raise RuntimeError(error)

    run = messages._RUN["all-to-all"]
    messages._RUN["all-to-all"] = refuse
    try:
        return measure(lines_of_nodes([0, 0]), ["all-to-all", "broadcast"], [8, 16], QUICK, CPU)
    finally:
        messages._RUN["all-to-all"] = run


def test_an_operation_that_the_backend_lacks_is_a_row_that_says_so(ranks: RankPool) -> None:
    rows, _ = ranks.run(_refusing, "Backend gloo does not support alltoall", world=2)
    lacking, *others = rows
    assert lacking.operation == "all-to-all"
    assert "does not support alltoall" in lacking.note
    assert lacking.seconds is None
    assert [row.operation for row in others] == ["broadcast", "broadcast"]
    assert all(row.seconds for row in others)


def test_any_other_failure_is_no_row(ranks: RankPool) -> None:
    with pytest.raises(RuntimeError, match="something else"):
        ranks.run(_refusing, "something else", world=2)


def _measured(operations: list[str]) -> list[Row]:
    return measure(lines_of_nodes([0, 0]), operations, [8, 64], QUICK, CPU)


def test_rows_are_the_same_on_every_rank(ranks: RankPool) -> None:
    first, second = ranks.run(_measured, ["all-reduce", "all-gather"], world=2)
    assert first == second
    assert [(row.operation, row.bytes, row.iterations) for row in first] == [
        ("all-reduce", 8, 3), ("all-reduce", 64, 3), ("all-gather", 8, 3), ("all-gather", 64, 3),
    ]  # fmt: skip
    assert all(row.seconds and row.p99_seconds and row.seconds <= row.p99_seconds for row in first)


def _lines(text: str | None, nodes: list[int]) -> list[tuple[Line, Any]]:
    own = lines_of_layout(parse_layout(text), nodes, CPU) if text else lines_of_nodes(nodes)
    return [(one.line, [list(ranks) for ranks in one.groups]) for one in own]


def test_the_axes_of_a_layout_are_measured_with_all_their_groups(ranks: RankPool) -> None:
    found = {line.axis: (line, groups) for line, groups in ranks.run(_lines, "tp2 fsdp2", [0, 0, 0, 0])[3]}
    assert found.keys() == {"tensor", "shard"}
    assert found["tensor"] == (Line("tensor", 2, 2, 1, "intra"), [[0, 1], [2, 3]])
    assert found["shard"] == (Line("shard", 2, 2, 1, "intra"), [[0, 2], [1, 3]])


def test_an_axis_that_crosses_nodes_is_of_the_outer_tier(ranks: RankPool) -> None:
    found = {line.axis: line for line, _ in ranks.run(_lines, "tp2 fsdp2", [0, 0, 1, 1])[0]}
    assert found["tensor"].tier == "intra"
    assert found["shard"].tier == "inter"
    assert found["shard"].nodes == 2


def test_without_a_layout_two_nodes_are_measured_inside_and_between(ranks: RankPool) -> None:
    found = {line.axis: (line, groups) for line, groups in ranks.run(_lines, None, [0, 0, 1, 1])[2]}
    assert found["all ranks"][0] == Line("all ranks", 4, 1, 2, "inter")
    assert found["inside a node"] == (Line("inside a node", 2, 2, 1, "intra"), [[0, 1], [2, 3]])
    assert found["between nodes"] == (Line("between nodes", 2, 2, 2, "inter"), [[0, 2], [1, 3]])


def test_on_one_node_there_is_one_line(ranks: RankPool) -> None:
    (found,) = ranks.run(_lines, None, [0, 0, 0, 0])[1]
    assert found[0] == Line("all ranks", 4, 1, 1, "intra")
