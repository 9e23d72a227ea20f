"""Marks: what the program itself says of its memory while it is rehearsed.

FSDP2 works between modules, where no module's path says what a buffer is for; so its own steps are named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.distributed.fsdp import CPUOffloadPolicy
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup

from meshwright.rehearse.ledger import Ledger
from meshwright.rehearse.moves import Moves

PARAMETERS, GRADIENTS, OPTIMIZER, GATHERED = "parameters", "gradients", "optimizer", "gathered"
BUFFERS, COMMUNICATION = "buffers", "communication"
_STEPS = ("unshard", "wait_for_unshard", "reshard", "post_backward", "finalize_backward")


@contextmanager
def named_sharding(ledger: Ledger) -> Iterator[None]:
    """Inside, what FSDP2 allocates for its collectives is communication, whole gradients are gathered, and what it
    offloads is on the host."""
    before = {name: getattr(FSDPParamGroup, name) for name in _STEPS}
    for name, original in before.items():
        setattr(FSDPParamGroup, name, _inside(original, ledger, name))
    try:
        yield
    finally:
        for name, original in before.items():
            setattr(FSDPParamGroup, name, original)


def _inside(original: Callable[..., Any], ledger: Ledger, name: str) -> Callable[..., Any]:
    def call(group: FSDPParamGroup, *args: Any, **kwargs: Any) -> Any:
        if name == "post_backward":
            mark(ledger, _whole_gradients(group), GATHERED)
        offloads = isinstance(group.offload_policy, CPUOffloadPolicy)
        if offloads and name == "unshard":
            for held in group.fsdp_params:
                ledger.put_on_host(held.sharded_param)
        before, ledger.inside = ledger.inside, COMMUNICATION
        try:
            with Moves(ledger) if offloads else nullcontext():
                return original(group, *args, **kwargs)
        finally:
            ledger.inside = before

    return call


def _whole_gradients(group: FSDPParamGroup) -> list[torch.Tensor]:
    """Gradients before they are scattered: of this micro-batch, and those added up so far."""
    found = []
    for held in group.fsdp_params:
        whole = getattr(held, "_unsharded_param", None)
        found += [getattr(whole, "grad", None), held.unsharded_accumulated_grad]
    return [gradient for gradient in found if gradient is not None]


def mark(ledger: Ledger, tensors: list[torch.Tensor], tag: str) -> None:
    """Say what the memory of these is."""
    for tensor in tensors:
        block = ledger.block_of(tensor)
        if block is not None:
            block.tag = tag
