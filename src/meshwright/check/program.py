"""What every rank runs: the case under one layout, compared box by box with the reference."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from meshwright.check.case import Case, cut, global_batch, rows_of
from meshwright.check.reference import read_reference
from meshwright.cost.wire_row import WireRow
from meshwright.modes.context import split_batch
from meshwright.modes.mesh import Mesh, make_mesh
from meshwright.modes.options import Options
from meshwright.modes.parts import Part
from meshwright.modes.record import Recorder, summarize
from meshwright.spec.layout import Layout
from meshwright.train.assemble import assemble
from meshwright.train.batch import Batch
from meshwright.train.launch.pool_task import Reference, load
from meshwright.train.models.build import load_architecture
from meshwright.train.optim.optimizer import make_optimizer
from meshwright.train.update import update

AXES = ("pipeline", "replicate", "shard", "context", "tensor")


class Difference(NamedTuple):
    """Numbers beside the reference's, summed over a box."""

    largest: float
    """The largest absolute difference."""
    dot: float
    """Σ found · reference."""
    found: float
    """Σ found²."""
    reference: float
    """Σ reference²."""


@dataclass
class BoxReport:
    """One part on one rank: where it lies and how far its numbers are from the reference's."""

    name: str
    shape: tuple[int, ...]
    offset: tuple[int, ...]
    size: tuple[int, ...]
    copies: int
    tied_copy: bool
    start: float = 0.0
    """The largest absolute difference before the first step."""
    gradient: list[Difference] = field(default_factory=list)
    """By step; NaN where there was no gradient."""
    update: list[Difference] = field(default_factory=list)
    digest: str = ""
    """Of the parameter's bytes after the last step."""


@dataclass
class RankReport:
    """What one rank found."""

    place: dict[str, int]
    """Index along each axis."""
    loss: list[float]
    grad_norm: list[float]
    boxes: list[BoxReport]
    traffic: list[WireRow]
    """What this rank sent in the second step; the first one may also make connections."""
    seconds: float


def run_layout(case: Case, layout: Layout, reference: str, prepare: Reference | None = None) -> RankReport:
    """Run `case` under `layout` on this rank. `reference`: the file that `write_reference` wrote.

    `prepare` names a function that returns a context manager, entered around the run: tests break something there and
    see whether it is found.
    """
    around: AbstractContextManager[object] = load(prepare, [])() if prepare else nullcontext()
    with around:
        return _run(case, layout, reference)


def _run(case: Case, layout: Layout, reference: str) -> RankReport:
    torch.use_deterministic_algorithms(True)
    begin = time.perf_counter()
    torch.set_default_dtype(case.torch_dtype)
    known = read_reference(reference)
    mesh = make_mesh(layout)
    architecture = load_architecture(case.model)
    step = assemble(architecture, mesh, Options(), dtype=case.torch_dtype, seed=case.seed)
    parts = step.parallel.parts
    optimizer = make_optimizer(parts, case.optim, host="optimizer" in layout.offload)
    boxes = [BoxReport(p.name, p.shape, p.offset, p.size, p.copies, p.tied_copy) for p in parts]
    for part, box in zip(parts, boxes, strict=True):
        box.start = _difference(part.data, _box(known.parameters[0][part.name], box)).largest
    report = RankReport(_place(mesh), [], [], boxes, [], 0.0)
    for index in range(case.steps):
        batch = global_batch(case, index, architecture.model.vocab)
        before = [part.data.clone() for part in parts]
        with Recorder(mesh) as record:
            done = update(
                step,
                optimizer,
                _own(batch, case, mesh),
                target_tokens=batch.target_tokens,
                max_norm=case.max_norm,
                look=partial(_compare_gradients, boxes=boxes, known=known.gradients[index]),
            )
        if index == min(1, case.steps - 1):
            report.traffic = summarize(record.entries)
        report.loss.append(_total(done.share if step.reports else torch.zeros_like(done.share)))
        report.grad_norm.append(float(done.norm))
        _compare_updates(parts, boxes, before, known.parameters[index], known.parameters[index + 1])
    for part, box in zip(parts, boxes, strict=True):
        box.digest = hashlib.sha256(part.data.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()[:16]
    report.seconds = time.perf_counter() - begin
    return report


def _place(mesh: Mesh) -> dict[str, int]:
    """Where this rank stands; the mesh's shard axis counts the context ranks in."""
    place = {axis: mesh.index(axis) for axis in AXES}
    return {**place, "shard": place["shard"] // mesh.layout.context}


def _own(batch: Batch, case: Case, mesh: Mesh) -> list[Batch]:
    """This rank's micro-batches."""
    layout = mesh.layout
    data_rank = mesh.index("data") // layout.context
    own = [cut(batch, rows) for rows in rows_of(layout, case, data_rank)]
    if layout.context == 1:
        return own
    return [split_batch(one, layout, mesh.index("context")) for one in own]


def _total(share: torch.Tensor) -> float:
    total = share.detach().clone().double()
    dist.all_reduce(total)
    return float(total)


def _box(whole: torch.Tensor, box: BoxReport) -> torch.Tensor:
    for dim, (start, length) in enumerate(zip(box.offset, box.size, strict=True)):
        whole = whole.narrow(dim, start, length)
    return whole


def _compare_gradients(parts: Sequence[Part], boxes: list[BoxReport], known: dict[str, torch.Tensor]) -> None:
    for part, box in zip(parts, boxes, strict=True):
        gradient, expected = part.gradient, _box(known[box.name], box)
        if gradient is None:
            gradient = torch.full_like(expected, torch.nan)
        box.gradient.append(_difference(gradient, expected))


def _compare_updates(
    parts: list[Part], boxes: list[BoxReport], before: list[torch.Tensor], old: Any, new: Any
) -> None:  # fmt: skip
    for part, box, start in zip(parts, boxes, before, strict=True):
        expected = _box(new[box.name], box) - _box(old[box.name], box)
        box.update.append(_difference(part.data - start, expected))


def _difference(found: torch.Tensor, expected: torch.Tensor) -> Difference:
    if not found.numel():
        return Difference(0.0, 0.0, 0.0, 0.0)
    largest = (found - expected).abs().max()
    return Difference(*map(float, (largest, (found * expected).sum(), found.square().sum(), expected.square().sum())))
