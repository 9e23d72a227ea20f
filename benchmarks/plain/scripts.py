"""DDP and FSDP2 as PyTorch's tutorials write them: what the package's speed is compared with."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.nn.functional as F
from plain.model import SEQ, VOCAB, Llama
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def ddp(steps: int, sequences: int) -> list[float]:
    """Seconds of each step on this rank's `sequences`."""
    return _train(lambda model: DistributedDataParallel(model), steps, sequences)


def fsdp2(steps: int, sequences: int) -> list[float]:
    """Seconds of each step on this rank's `sequences`."""

    def shard(model: nn.Module) -> nn.Module:
        for block in model.layers:
            fully_shard(block)
        return fully_shard(model)

    return _train(shard, steps, sequences)


def _train(wrap: Callable[[nn.Module], nn.Module], steps: int, sequences: int) -> list[float]:
    torch.manual_seed(0)
    model = wrap(Llama())
    optimizer = torch.optim.AdamW(model.parameters(), lr=8e-4)
    seconds = []
    for step in range(steps):
        generator = torch.Generator().manual_seed(step * 1000 + dist.get_rank())
        tokens = torch.randint(VOCAB, (sequences, SEQ + 1), generator=generator)
        dist.barrier()
        begin = time.perf_counter()
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss = loss.detach()
        dist.all_reduce(loss)
        loss.item()
        seconds.append(time.perf_counter() - begin)
    return seconds
