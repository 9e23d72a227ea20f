"""The layout that really runs, read off what was built: parameters' types, groups' sizes, modules on the rank."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from meshwright.modes.parts import Part
from meshwright.modes.recompute import is_recomputed
from meshwright.modes.sharded import units
from meshwright.spec.units import count
from meshwright.train.step import Step


def running_layout(step: Step) -> str:
    """One line from facts, not from the request: what shards, what is summed over whom, what this rank holds."""
    p = step.parallel
    said = [_data(step), _model(step), _blocks(step)]
    held, whole = _numbers(p.parts, local=True), _numbers(p.parts, local=False)
    where = f"rank {dist.get_rank()} holds"
    of_whole = "all" if held == whole else f"{count(held)} of"
    place = "the model's" if p.mesh.layout.stages == 1 else "its stage's" if len(p.indices) == 1 else "its stages'"
    share = f"{where} {of_whole} {place} {count(whole)} parameters"
    return "running: " + "; ".join([text for text in said if text] + [share])


def _data(step: Step) -> str:
    p = step.parallel
    sharded = [part.parameter for part in p.parts if isinstance(part.parameter, DTensor)]
    if sharded:
        mesh = sharded[0].device_mesh
        over = f"{mesh.size(0)} replicas × {mesh.size(1)} shards" if mesh.ndim == 2 else f"{mesh.size()} shards"
        gathered = sum(1 for stage in p.stages for _ in units(stage))
        what = {1: "optimizer states", 2: "gradients and optimizer states", 3: "parameters, gradients and states"}
        return f"FSDP2 in {gathered} units over {over}, keeping {what[p.mesh.layout.zero_stage]} split"
    wrapped = [runner for runner in p.runners if isinstance(runner, DistributedDataParallel)]
    if wrapped:
        return f"DDP over {wrapped[0].process_group.size()} ranks"
    size = p.mesh.group("data").size()
    return f"gradients summed over {size} data ranks after the pipeline" if size > 1 else "one data rank"


def _model(step: Step) -> str:
    p = step.parallel
    said = []
    ways = max((cut.ways for cut in p.cuts.values() if not cut.expert), default=1)
    if ways > 1:
        sequence = ", sequence parallel" if p.mesh.layout.sequence_parallel else ""
        said.append(f"tensors cut {ways} ways{sequence}")
    experts = max((cut.ways for cut in p.cuts.values() if cut.expert), default=1)
    if experts > 1:
        said.append(f"experts spread over {experts} ranks")
    if p.mesh.group("context").size() > 1:
        said.append(f"sequences cut over {p.mesh.group('context').size()} ranks ({p.mesh.layout.context_kind})")
    if p.mesh.group("pipeline").size() > 1:
        stages = "stage" if len(p.indices) == 1 else "stages"
        schedule = p.options.schedule_table or p.mesh.layout.schedule
        said.append(
            f"{schedule} over {p.mesh.group('pipeline').size()} pipeline ranks, this one with {stages} "
            + ", ".join(map(str, p.indices))
        )
    return "; ".join(said)


def _blocks(step: Step) -> str:
    """What was changed in modules without cutting them."""
    modules = [module for stage in step.parallel.stages for module in stage.modules()]
    compiled = sum(getattr(module, "_compiled_call_impl", None) is not None for module in modules)
    again = {
        name: sum(is_recomputed(getattr(module, name, None)) for module in modules) for name in ("forward", "core")
    }
    said = [
        f"{compiled} blocks compiled" if compiled else "",
        f"{again['forward']} blocks computed again in backward" if again["forward"] else "",
        f"{again['core']} attention cores computed again in backward" if again["core"] else "",
    ]
    return "; ".join(text for text in said if text)


def _numbers(parts: Iterable[Part], *, local: bool) -> int:
    return sum(math.prod(part.size if local else part.shape) for part in parts if not part.tied_copy)
