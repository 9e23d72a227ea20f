"""Data parallelism, DDP (Li et al., arXiv:2006.15704): every rank keeps everything and sees other samples.

Split: the batch. Sent a step: the gradients, all-reduced in buckets while backward still runs: 2(n-1)/n · P · bytes,
once a step however many micro-batches are accumulated. Keeps: nothing. Use it while a whole copy of parameters,
gradients and optimizer states fits a device; not beyond.
"""

# No postponed annotations here: DDP reads those of its communication hook.
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from meshwright.modes.mesh import Mesh
from meshwright.modes.options import Options

_FLIGHTS = 4
"""Buckets on their way at once, after backward: all of them would take the memory of the gradients once more."""


def replicate(module: nn.Module, mesh: Mesh, options: Options, apart: Iterable[str]) -> nn.Module:
    """`module` wrapped so that backward sums its gradients over the data ranks, but for the parameters in `apart`.

    The sum is not divided: the loss is, once, by the global number of target tokens.
    """
    group = mesh.group("data")
    apart = set(apart)
    learns = any(p.requires_grad for name, p in module.named_parameters() if name not in apart)
    if group.size() == 1 or not learns:
        return module
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(  # type: ignore[no-untyped-call]
        module, list(apart)
    )
    wrapped = DistributedDataParallel(
        module,
        process_group=group,
        bucket_cap_mb=options.bucket_mb,
        static_graph=options.static_graph,
        find_unused_parameters=options.find_unused,
        gradient_as_bucket_view=True,
        forward_sync_buffers=False,
        init_sync=False,  # every rank drew the same numbers
    )
    wrapped.register_comm_hook(group, _summed)
    return wrapped


def _summed(
    group: dist.ProcessGroup,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[torch.Tensor]:
    buffer = bucket.buffer()
    work = dist.all_reduce(buffer, group=group, async_op=True)
    assert work is not None
    return work.get_future().then(lambda _: buffer)  # type: ignore[no-any-return]


def sum_in_buckets(gradients: Iterable[torch.Tensor], group: dist.ProcessGroup, bucket_bytes: float) -> None:
    """Sum gradients over `group` in place, once backward is over: several tensors in one collective."""
    if group.size() == 1:
        return
    flights: deque[tuple[torch.Tensor, list[torch.Tensor], Any]] = deque()
    for bucket in _buckets(gradients, bucket_bytes):
        flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
        flights.append((flat, bucket, dist.all_reduce(flat, group=group, async_op=True)))
        if len(flights) == _FLIGHTS:
            _land(*flights.popleft())
    while flights:
        _land(*flights.popleft())


def _land(flat: torch.Tensor, bucket: list[torch.Tensor], work: Any) -> None:
    work.wait()
    for gradient, part in zip(bucket, torch.split(flat, [g.numel() for g in bucket]), strict=True):
        gradient.copy_(part.view_as(gradient))


def _buckets(gradients: Iterable[torch.Tensor], bucket_bytes: float) -> Iterator[list[torch.Tensor]]:
    """Runs of gradients of one dtype and at most `bucket_bytes`, or a single bigger one."""
    bucket: list[torch.Tensor] = []
    size = 0
    for gradient in gradients:
        length = gradient.numel() * gradient.element_size()
        if bucket and (size + length > bucket_bytes or gradient.dtype != bucket[0].dtype):
            yield bucket
            bucket, size = [], 0
        bucket.append(gradient)
        size += length
    if bucket:
        yield bucket
