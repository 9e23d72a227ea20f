"""FLOPs that one rank's kernels do in a step, by kind of operation: what `rehearse` counts.

Products: 2·m·n·k, and once more for each gradient (PaLM, arXiv:2204.02311 appendix B). Attention: two products forward
and five backward over the keys that a query sees (arXiv:2205.14135). The head multiplies with this rank's rows of the
vocabulary. Routing is balanced.
"""

from __future__ import annotations

from meshwright.cost import operations as ops
from meshwright.cost.layer import layer_operations
from meshwright.cost.program.kept_mixture import multiplied_rows, visits_of
from meshwright.cost.program.shape import Shape
from meshwright.cost.step import micro_batch_count
from meshwright.cost.wire.local import stages_of
from meshwright.cost.wire.place import Place
from meshwright.spec.columns import columns_of
from meshwright.spec.layout import Layout
from meshwright.spec.model import Model
from meshwright.spec.workload import Workload

KINDS = (ops.MATMUL, ops.ATTENTION)


def rank_flops(
    model: Model, workload: Workload, layout: Layout, rank: int, *, gpu: bool, balance: bool = True
) -> dict[str, float]:
    """FLOPs by kind in a step of our own program: forward, both gradients, and what recomputation runs again.

    Selective recomputation runs the attention again, full recomputation a whole block, but for a dense block's last
    product, and without a load-balancing loss (`balance`) for a mixture's last one: PyTorch's checkpoint stops at the
    last tensor that backward needs. On a CPU its attention wants values as
    wide as keys.
    """
    columns, place = columns_of(layout), Place(layout, rank)
    dense, moe = layer_operations(model, workload, columns)
    s = Shape.of(model, workload, layout, gpu=gpu)
    micro_batches = float(micro_batch_count(workload, columns))
    found = dict.fromkeys(KINDS, 0.0)
    for stage in stages_of(model, place):
        for layer in stage.layers:
            mixture = moe is not None and model.is_moe_layer(layer)
            for operation in moe if mixture and moe is not None else dense:
                if operation.kind in found:
                    flops = float(operation.flops) * (_filled(s) if operation.name.startswith("experts ") else 1.0)
                    last = (
                        "down"
                        if not mixture or balance or (model.experts is not None and model.experts.shared_gate)
                        else "shared down"
                    )
                    passes = 1 + operation.input_gradient + operation.weight_gradient
                    if operation.kind == ops.ATTENTION and not gpu:
                        flops *= _wider(model)
                    found[operation.kind] += flops * (passes + _again(layout, operation, last)) * micro_batches
            if mixture:
                found[ops.MATMUL] += _combined(s) * (4 if layout.recompute == "full" else 3) * micro_batches
        if stage.index == layout.stages - 1:
            found[ops.MATMUL] += 6.0 * s.tokens * model.hidden * s.vocabulary * micro_batches
    return found


def _again(layout: Layout, operation: ops.Operation, last: str) -> int:
    """How often recomputation runs an operation of a block whose last product is called `last`."""
    if layout.recompute == "full":
        return int(operation.name != last)
    return int(layout.recompute == "selective" and operation.kind == ops.ATTENTION)


def _filled(s: Shape) -> float:
    """Rows that experts multiply, relative to their visits."""
    return multiplied_rows(s) / visits_of(s)


def _combined(s: Shape) -> float:
    """FLOPs of weighing the experts' results: [n, k] with [n, k, hidden]."""
    return 2.0 * visits_of(s) * s.model.hidden


def _wider(model: Model) -> float:
    """Attention's FLOPs with values of the keys' width, relative to those with their own."""
    m = model.latent
    if m is None or m.v_head_dim >= model.head_dim:
        return 1.0
    return 2 * model.head_dim / (model.head_dim + m.v_head_dim)
