"""The layout that really runs, read off what was built: parameters' types, groups' sizes, modules on the rank."""

from __future__ import annotations

from collections.abc import Iterable

from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from meshwright.modes.parts import Part
from meshwright.modes.sharded import units
from meshwright.spec.units import count
from meshwright.train.step import Step


def running_layout(step: Step) -> str:
    """One line from facts, not from the request: what shards, what is summed over whom, what this rank holds."""
    p = step.parallel
    said = [_data(step), _model(step)]
    held, whole = _numbers(p.parts, local=True), _numbers(p.parts, local=False)
    share = f"rank 0 holds {count(held)} of its stages' {count(whole)} parameters"
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
        said.append(
            f"{p.mesh.layout.schedule} over {p.mesh.group('pipeline').size()} pipeline ranks, rank 0 with {stages} "
            + ", ".join(map(str, p.indices))
        )
    return "; ".join(said)


def _numbers(parts: Iterable[Part], *, local: bool) -> int:
    total = 0
    for part in parts:
        product = 1
        for length in part.size if local else part.shape:
            product *= length
        total += product
    return total
