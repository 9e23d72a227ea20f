"""A pipeline schedule from a file: what it says of stages, and whether it is one that this pipeline can run."""

from __future__ import annotations

from pathlib import Path

from meshwright.cost.schedules import parse_table, parts, stage_ranks
from meshwright.cost.simulate import simulate
from meshwright.spec.errors import LayoutError
from meshwright.spec.layout import Layout


def read_schedule_table(path: str | Path, layout: Layout, micro_batches: int) -> list[int]:
    """The rank of each stage in a schedule in PyTorch's CSV form.

    Raises LayoutError for a file that cannot be read, or is no schedule of this pipeline's ranks, stages and
    micro-batches, or one in which ranks wait for each other for ever.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LayoutError(f"The schedule {path} cannot be read: {error}.") from error
    try:
        table = parse_table(text)
        places = stage_ranks(table)
        simulate(table, *([1.0] * len(places),) * 3)
    except LayoutError as error:
        raise LayoutError(f"The schedule {path}: {error}", error.legal) from error
    for what, found, wanted in (
        ("pipeline ranks", len(table), layout.pipeline),
        ("stages", len(places), layout.stages),
        (
            "micro-batches",
            1 + max(action.micro_batch for row in table for cell in row for action in parts(cell)),
            micro_batches,
        ),
    ):
        if found != wanted:
            raise LayoutError(f"The schedule {path} is for {found} {what}; this run has {wanted}.")
    return places
