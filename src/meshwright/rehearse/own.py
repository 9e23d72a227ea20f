"""Your own model and step, rehearsed.

def step(parallel):
    optimizer = make_optimizer(parallel.parts, OptimConfig())

    def once():
        loss = parallel.runners[0](torch.zeros(1, 128, dtype=torch.int64)).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return once

found = rehearse(MyModel, step, "fsdp8", "8xH100", recipe=RECIPE)
print(found.peak_bytes, found.peak, found.parts)
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from meshwright.modes.options import Options
from meshwright.modes.parallelize import Parallel, parallelize
from meshwright.modes.recipe import Recipe
from meshwright.rehearse.marks import GRADIENTS, PARAMETERS, mark
from meshwright.rehearse.result import RankRehearsal
from meshwright.rehearse.scene import DEVICE, scene, unset
from meshwright.rehearse.session import check_rank
from meshwright.spec.cluster import Cluster
from meshwright.spec.cluster_text import parse_cluster
from meshwright.spec.columns import columns_of
from meshwright.spec.errors import LayoutError
from meshwright.spec.layout import Layout
from meshwright.spec.notation import parse_layout
from meshwright.spec.rules.sharding import explain_offload, offloads_apart
from meshwright.train.config.devices import is_accelerator
from meshwright.train.launch.environment import check_devices


def rehearse(
    build_model: Callable[[], nn.Module],
    step: Callable[[Parallel], Callable[[], object]],
    layout: Layout | str,
    cluster: Cluster | str,
    *,
    recipe: Recipe | None = None,
    options: Options | None = None,
    rank: int = 0,
    steps: int = 2,
    history: bool = False,
) -> RankRehearsal:
    """What `rank` does when it trains a model of yours under `layout` on `cluster`.

    `build_model` is called on the meta device. `step` gets this rank's share of the model and returns what does one
    step: forward, backward, optimizer; every tensor that it makes lies on the CPU and has no numbers. `recipe` names
    the model's modules, unless the model has one (`modes.recipe`). Phases are what `modes.ranges.named` calls them, or
    forward, backward and optimizer by the state of autograd. Of parts, `states` has parameters and gradients, which
    count where `step` leaves them in `parallel.parts`.

    One process can be one rank only: rehearse each in a process of its own. Raises LayoutError: no such rank, more
    ranks than devices, widths that do not divide, or an offload that PyTorch does not have.
    """
    layout = parse_layout(layout) if isinstance(layout, str) else layout
    cluster = parse_cluster(cluster) if isinstance(cluster, str) else cluster
    check_devices(layout, cluster)
    check_rank(layout, rank)
    if offloads_apart(columns_of(layout)):
        why, legal = explain_offload(layout)
        raise LayoutError(why, tuple(legal))
    with scene(layout, rank, gpu=is_accelerator(cluster.device.name), infer=True) as here:
        with torch.device("meta"):
            model = build_model()
        _fill_buffers(model)
        parallel = parallelize(model, here.mesh, recipe=recipe, options=options, initialise=unset)
        here.meet(parallel)
        once = step(parallel)  # holds the optimizer, whose states live until all is counted
        here.steps(steps, once)
        held = [gradient for part in parallel.parts if (gradient := part.gradient) is not None]
        mark(here.ledger, held, GRADIENTS)
        states = {PARAMETERS: here.bytes([part.data for part in parallel.parts]), GRADIENTS: here.bytes(held)}
        return here.found(parallel, steps, states, history=history)


def _fill_buffers(model: nn.Module) -> None:
    """Buffers that were made on the meta device lie where the others do; like them they have no numbers."""
    for module in model.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.device.type == "meta":
                module._buffers[name] = torch.empty_like(buffer, device=DEVICE)
