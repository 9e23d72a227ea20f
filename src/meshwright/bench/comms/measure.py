"""Measure: every operation at every size on every axis, in ranks that are there already. All ranks call it alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist

from meshwright.bench.clock import durations
from meshwright.bench.comms.clock import WARM_UP, iterations_for, timed
from meshwright.bench.comms.lines import Own
from meshwright.bench.comms.messages import Message, make_message
from meshwright.bench.comms.operations import message_bytes
from meshwright.spec.collective import Row
from meshwright.train.launch.signals import meeting_device

Progress = Callable[[int, int], None]


class WrongDataError(RuntimeError):
    """A collective gave other numbers than were sent."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure."""

    seconds: float
    """For all sizes of all operations on all axes together, about."""
    iterations: int | None = None
    """Of each size; None: as many as the seconds allow."""


def measure(
    lines: Sequence[Own],
    operations: Sequence[str],
    sizes: Sequence[int],
    effort: Effort,
    device: torch.device,
    progress: Progress = lambda done, total: None,
) -> list[Row]:
    """One row an axis, operation and size, the same on every rank. Raises WrongDataError, on every rank as well."""
    total = len(lines) * len(operations) * len(sizes)
    rows: list[Row] = []
    for own in lines:
        for operation in operations:
            lacks = ""
            wanted = dict.fromkeys(message_bytes(operation, size, own.line.ranks) for size in sizes)
            for size in wanted:
                if not lacks:
                    row = _measured(own, operation, size, effort, effort.seconds / max(total, 1), device)
                    lacks = row.note
                    rows.append(row)
            progress(min((len(rows) // len(sizes) + 1) * len(sizes), total), total)
    return rows


def _measured(own: Own, operation: str, size: int, effort: Effort, budget: float, device: torch.device) -> Row:
    """One size. A backend that cannot is a row with a note, on all ranks."""
    message: Message | None = None
    trouble = ""
    try:
        message = make_message(operation, size, own.group, device)
        message.fill()
        message.run()
        _wait(device)
    except (RuntimeError, NotImplementedError) as error:
        trouble = _reason(error)
        if not trouble:
            raise
    trouble = _anyone(trouble)
    if trouble or message is None:
        return Row(own.line, operation, size, note=trouble)
    _verify(message)
    message.rest()
    guess = timed(message.run, WARM_UP, device)
    iterations = effort.iterations or _agreed(iterations_for(guess, budget))
    dist.barrier()
    taken = durations(message.run, iterations, device)
    message.fill()
    message.run()
    _wait(device)
    _verify(message)
    median, late = _slowest(taken, own.groups)
    return Row(own.line, operation, size, iterations, median, late)


def _slowest(taken: torch.Tensor, groups: Sequence[Sequence[int]]) -> tuple[float, float]:
    """Median and 99th percentile of the group that takes longest."""
    place = meeting_device()
    everyone = [torch.empty_like(taken, device=place) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, taken.to(place))
    means = [torch.stack([everyone[rank] for rank in ranks]).mean(0).cpu().numpy() for ranks in groups]
    slowest = max(means, key=lambda times: float(np.median(times)))
    return float(np.median(slowest)), float(np.percentile(slowest, 99))


def _verify(message: Message) -> None:
    """Raises WrongDataError on every rank with the first rank's finding."""
    found = message.arrived()
    told = _anyone(f"rank {dist.get_rank()}: {found}" if found else "")
    if told:
        raise WrongDataError(told)


def _anyone(text: str) -> str:
    """The text of the first rank that has one, on every rank."""
    flag = torch.tensor([int(bool(text))], dtype=torch.int32, device=meeting_device())
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    if not flag.item():
        return ""
    everyone: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(everyone, text)
    return next(one for one in everyone if one)


def _agreed(count: int) -> int:
    """The smallest number that any rank came to."""
    least = torch.tensor([count], dtype=torch.int32, device=meeting_device())
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    return int(least.item())


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _reason(error: Exception) -> str:
    """What a person reads of an operation that the backend lacks, or for which there is no memory; "" otherwise."""
    text = " ".join(str(error).split())
    lower = text.lower()
    if "out of memory" in lower or "can't allocate memory" in lower:
        return "out of memory"
    if any(words in lower for words in ("not support", "unsupported", "not implemented", "no backend")):
        return f"the backend has none: {text[:120]}"
    return "the backend has none" if isinstance(error, NotImplementedError) else ""
