"""Pipeline schedules as tables: for each rank, what it computes, in order; the same tables as PyTorch's, without it.

One file a schedule (`rank_row`). `table` makes a table, `parse_table` and `format_table` read and write PyTorch's CSV,
`placement` says which rank holds which stage, `takes` and `check` which micro-batch counts are legal, `peak_held` how
many activations a row needs. Order and legality follow torch.distributed.pipelining of PyTorch 2.13.
"""

from __future__ import annotations

from collections.abc import Callable

from meshwright.cost.schedules import (
    dualpipe_v,
    gpipe,
    interleaved,
    interleaved_zero_bubble,
    looped_bfs,
    one_f_one_b,
    zbv,
)
from meshwright.cost.schedules.action import Action, Cell, Pair, Table, parse_cell, parts
from meshwright.cost.schedules.activations import peak_held
from meshwright.cost.schedules.consistency import check_table, stage_ranks
from meshwright.cost.schedules.legality import check, takes
from meshwright.cost.schedules.placement import V_SHAPED, placement
from meshwright.cost.schedules.table_file import format_table, parse_table

__all__ = [
    "V_SHAPED",
    "Action",
    "Cell",
    "Pair",
    "Table",
    "check",
    "check_table",
    "format_table",
    "parse_cell",
    "parse_table",
    "parts",
    "peak_held",
    "placement",
    "rank_row",
    "stage_ranks",
    "table",
    "takes",
]

_ROWS: dict[str, Callable[[int, int, int, int], list[Cell]]] = {
    "gpipe": gpipe.rank_row,
    "1f1b": one_f_one_b.rank_row,
    "interleaved1f1b": interleaved.rank_row,
    "loopedbfs": looped_bfs.rank_row,
    "interleavedzerobubble": interleaved_zero_bubble.rank_row,
    "zbvzerobubble": zbv.rank_row,
    "dualpipev": dualpipe_v.rank_row,
}


def table(schedule: str, pipeline: int, micro_batches: int, virtual_stages: int = 1) -> Table:
    """For each of `pipeline` ranks, the compute actions of one step in the order in which PyTorch runs them.

    `virtual_stages` is the number of stages a rank. Raises LayoutError, with the nearest legal values, where PyTorch's
    class for `schedule` would refuse.
    """
    check(schedule, pipeline, micro_batches, virtual_stages)
    row = _ROWS[schedule]
    return [row(rank, pipeline, micro_batches, virtual_stages) for rank in range(pipeline)]


def rank_row(schedule: str, rank: int, pipeline: int, micro_batches: int, virtual_stages: int = 1) -> list[Cell]:
    """One rank's row of `table`."""
    check(schedule, pipeline, micro_batches, virtual_stages)
    return _ROWS[schedule](rank, pipeline, micro_batches, virtual_stages)
