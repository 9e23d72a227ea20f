"""DDP and FSDP2 as PyTorch's tutorials write them: what the package's speed is compared with."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.nn.functional as F
from plain.model import SEQ, VOCAB, Llama
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def ddp(sequences: int) -> Callable[[int], None]:
    """A step on this rank's `sequences`."""
    return _program(lambda model: DistributedDataParallel(model), sequences)


def fsdp2(sequences: int) -> Callable[[int], None]:
    """A step on this rank's `sequences`."""

    def shard(model: nn.Module) -> nn.Module:
        for block in model.layers:
            fully_shard(block)
        return fully_shard(model)

    return _program(shard, sequences)


def _program(wrap: Callable[[nn.Module], nn.Module], sequences: int) -> Callable[[int], None]:
    torch.manual_seed(0)
    model = wrap(Llama())
    optimizer = torch.optim.AdamW(model.parameters(), lr=8e-4)

    def run(index: int) -> None:
        generator = torch.Generator().manual_seed(index * 1000 + dist.get_rank())
        tokens = torch.randint(VOCAB, (sequences, SEQ + 1), generator=generator)
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss = loss.detach()
        dist.all_reduce(loss)
        loss.item()

    return run
