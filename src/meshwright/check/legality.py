"""What can be checked, said before any rank starts."""

from __future__ import annotations

from meshwright.check.case import Case, with_micro_batches
from meshwright.spec.errors import LayoutError, ModelError
from meshwright.spec.layout import Layout
from meshwright.spec.model import Model
from meshwright.spec.notation import format_layout
from meshwright.spec.workload import make_workload

MOST_PARAMETERS = 50_000_000
"""Every number of the model is held and compared several times over, on CPU ranks of one machine."""


def check_size(model: Model) -> None:
    """Raises ModelError for a model that is too large to be compared number by number."""
    from meshwright.cost.parameters import parameters

    count = int(parameters(model).total)
    if count > MOST_PARAMETERS:
        raise ModelError(
            f"{model.name} has {count:,} parameters; check compares every number of at most {MOST_PARAMETERS:,}. "
            "A small model of the same kind has the same operations.",
            ["tiny-llama", "tiny-gpt2", "tiny-mixtral", "tiny-qwen3", "a config.json with fewer and narrower layers"],
        )


def check_legal(case: Case, model: Model, layout: Layout, *, several: bool = False) -> None:
    """Raises LayoutError, with the nearest legal values, for a layout that training would refuse on this case."""
    from meshwright.train.config.legality import check_runs
    from meshwright.train.config.resolve import rules_cluster

    run = with_micro_batches(layout, case, 1)
    if run is None:
        unit = layout.data * layout.pipeline * (2 if layout.schedule == "dualpipev" and layout.pipeline > 1 else 1)
        raise LayoutError(
            f"{format_layout(layout)} cannot cut {case.global_batch} sequences into its micro-batches.",
            legal=[f"--global-batch {2 * unit}"],
        )
    workload = make_workload(
        case.seq_len, case.global_batch, precision="fp32", implementation="eager", causal=model.causal
    )
    try:
        check_runs(model, rules_cluster(layout.devices), workload, run)
    except LayoutError as error:
        if not several:
            raise
        raise LayoutError(f"In {format_layout(layout)}: {error}") from error
