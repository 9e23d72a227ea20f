"""Parts: what the bytes of an Account are, once it is known when each block was freed."""

from __future__ import annotations

from collections.abc import Iterable

from meshwright.rehearse.ledger import Account, Block
from meshwright.rehearse.marks import BUFFERS, COMMUNICATION, GATHERED, GRADIENTS, OPTIMIZER, PARAMETERS

ACTIVATIONS, LOGITS, TEMPORARY, RECOMPUTED = "activations", "logits", "temporary", "recomputed"
ORDER = (
    PARAMETERS, GRADIENTS, OPTIMIZER, BUFFERS, ACTIVATIONS, RECOMPUTED, GATHERED, COMMUNICATION, LOGITS, TEMPORARY,
)  # fmt: skip
HEADS = ("head",)


def part_of(block: Block) -> str:
    """The part that a block is, by the first of these rules that says something.

    Gathered parameters; what the program says; what an optimizer makes and keeps; the head's output and the loss; what
    a forward makes and a backward frees is an activation; what backward makes by running forward again is recomputed;
    the rest is temporary.
    """
    if block.gathered:
        return GATHERED
    if block.tag:
        return block.tag
    if block.phase.name == OPTIMIZER and block.died < 0:
        return OPTIMIZER
    if block.module in HEADS or (block.phase.name in ("forward", "loss") and not block.module and block.step):
        return LOGITS
    if block.phase.name == "forward":
        return ACTIVATIONS if kept(block) else TEMPORARY
    return RECOMPUTED if block.again else TEMPORARY


def kept(block: Block) -> bool:
    """Whether it was made in forward and waits for backward."""
    died = block.died_phase
    return block.phase.name == "forward" and not block.tag and not block.gathered and (died is None or died.backward)


def alive(account: Account, event: int, *, host: bool = False) -> Iterable[Block]:
    """The blocks on the device, or on the host, that live after an event."""
    return (
        block for block in account.blocks if block.host == host and block.born <= event and not 0 <= block.died <= event
    )


def levels(account: Account, *, host: bool = False) -> list[float]:
    """Bytes alive on the device, or on the host, after each event."""
    total, found = 0.0, []
    for event in account.events:
        if account.blocks[event.block].host == host:
            total += event.bytes
        found.append(total)
    return found
