"""Sums over ranks: the few collectives that optimizers and the gradient norm need, and who holds which box."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from meshwright.modes.parts import Part

_BLOCK = 512


@dataclass(frozen=True)
class Box:
    """What a rank holds of a parameter: [offset, offset + size)."""

    offset: tuple[int, ...]
    size: tuple[int, ...]

    @property
    def slices(self) -> tuple[slice, ...]:
        """The box as an index into the whole."""
        return tuple(slice(start, start + length) for start, length in zip(self.offset, self.size, strict=True))

    @property
    def numel(self) -> int:
        """Elements in the box."""
        return math.prod(self.size)


def group_size(group: dist.ProcessGroup | None) -> int:
    """Ranks of a group; None is the world, which is one rank where nothing is distributed."""
    return dist.get_world_size(group) if dist.is_initialized() else 1


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which numbers of this dtype are summed: float64 for itself, float32 for all others."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def transport(device: torch.device, group: dist.ProcessGroup | None) -> torch.device:
    """The device whose tensors `group` can send: `device`, or the accelerator where only that is connected.

    Offloaded parameters live on the host, and nccl carries nothing from there.
    """
    if not dist.is_initialized():
        return device
    group = dist.group.WORLD if group is None else group
    assert group is not None
    kinds = [connected.type for connected in group._device_types]
    if device.type in kinds or not kinds:
        return device
    accelerator = torch.accelerator.current_accelerator()
    return torch.device(kinds[0], torch.accelerator.current_device_index()) if accelerator else torch.device(kinds[0])


def all_sum(values: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """The sum of `values` over the ranks of `group`, the same bits on each; takes the memory of `values`."""
    if group_size(group) == 1:
        return values
    sent = values.to(transport(values.device, group))
    dist.all_reduce(sent, group=group)
    return sent.to(values.device)


def all_sums(values: Sequence[Tensor], group: dist.ProcessGroup | None) -> list[Tensor]:
    """Each tensor summed over the ranks of `group`, by one all-reduce; all of one dtype and device."""
    if not values or group_size(group) == 1:
        return list(values)
    flat = all_sum(torch.cat([value.reshape(-1) for value in values]), group)
    pieces = torch.split(flat, [value.numel() for value in values])
    return [piece.view(value.shape) for piece, value in zip(pieces, values, strict=True)]


def square_sum(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Σ x² as a scalar of `dtype`, without a copy of `values`.

    On the CPU in blocks: PyTorch adds float32 squares there one after the other, and of 30 million it loses 0.2%.
    """
    if values.device.type != "cpu" or values.numel() <= _BLOCK or not values.is_contiguous():
        return _norm(values, dtype).square_()
    flat = values.detach().view(-1)
    full = flat.numel() // _BLOCK * _BLOCK
    blocks = _norm(flat[:full].view(-1, _BLOCK), dtype, dim=1)
    return blocks.square_().sum() + _norm(flat[full:], dtype).square_()


def square_sums(tensors: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """`square_sum` of each tensor, with one kernel for all on an accelerator."""
    if not tensors or tensors[0].device.type == "cpu":
        return [square_sum(values, dtype) for values in tensors]
    norms = list(torch._foreach_norm(list(tensors), 2, dtype=dtype))
    torch._foreach_mul_(norms, norms)
    return norms


def _norm(values: Tensor, dtype: torch.dtype, dim: int | None = None) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(values, dim=dim, dtype=dtype)
    return norm


def gather_boxes(parts: Sequence[Part], group: dist.ProcessGroup | None) -> list[list[Box]]:
    """By rank of `group` and part: the box that the rank holds. Collective; parts in the same order on all ranks."""
    own = [Box(part.offset, part.size) for part in parts]
    if group_size(group) == 1 or not parts:
        return [own]
    longest = max(len(box.size) for box in own)
    rows = [[*box.offset, *box.size] + [0] * (2 * (longest - len(box.size))) for box in own]
    sent = torch.tensor(rows, dtype=torch.int64, device=transport(parts[0].parameter.device, group))
    received = [torch.empty_like(sent) for _ in range(group_size(group))]
    dist.all_gather(received, sent, group=group)
    return [[_box(row, len(part.shape)) for row, part in zip(table.tolist(), parts, strict=True)] for table in received]


def _box(row: list[int], dims: int) -> Box:
    return Box(tuple(row[:dims]), tuple(row[dims : 2 * dims]))
