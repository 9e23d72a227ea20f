"""The stack of a step is its bytes at every moment, by part; the highest moments are never thinned out."""

from __future__ import annotations

import pytest

from meshwright.rehearse.ledger import Account, Block, Event
from meshwright.rehearse.marks import OPTIMIZER, PARAMETERS
from meshwright.rehearse.parts import levels
from meshwright.rehearse.places import Phase
from meshwright.rehearse.stacked import MOMENTS, stack_of

FORWARD, BACKWARD = Phase("forward", micro_batch=0), Phase("backward", micro_batch=0)


class Story(Account):
    """An account told event by event."""

    def make(self, size: int, step: int, phase: Phase, tag: str = "", host: bool = False) -> int:
        self.blocks.append(Block(size, len(self.events), phase, "", step, tag=tag, host=host))
        self.events.append(Event(len(self.blocks) - 1, size, phase, "", step))
        return len(self.blocks) - 1

    def free(self, block: int, step: int, phase: Phase) -> None:
        self.blocks[block].died, self.blocks[block].died_phase = len(self.events), phase
        self.events.append(Event(block, -self.blocks[block].bytes, phase, "", step))


def story(layers: int) -> Story:
    told = Story()
    told.make(100, 0, Phase(""), PARAMETERS)
    told.make(400, 0, Phase(""), OPTIMIZER, host=True)
    for step in (1, 2):
        kept = [told.make(10 + step, step, FORWARD) for _ in range(layers)]
        for block in reversed(kept):
            told.free(told.make(7, step, BACKWARD), step, BACKWARD)
            told.free(block, step, BACKWARD)
    return told


@pytest.mark.parametrize("layers", [4, 3 * MOMENTS])
def test_parts_add_up_to_the_peak_and_are_never_below_zero(layers: int) -> None:
    account = story(layers)
    heights = levels(account)
    top = max(range(len(heights)), key=heights.__getitem__)
    stack = stack_of(account, heights, top)
    assert stack.step == 2
    assert stack.events == 4 * layers
    assert len(stack.at) <= MOMENTS
    assert sum(column[stack.peak] for column in stack.parts.values()) == heights[top] == 100 + 12 * layers + 7
    each = -(-stack.events // MOMENTS)
    assert stack.at == tuple(range(0, stack.events, each))
    assert stack.peak == layers // each  # where backward makes the first
    assert all(size >= 0 for column in stack.parts.values() for size in column)
    assert set(stack.parts) == {"parameters", "logits", "temporary"}  # the optimizer's are on the host
    spans = [(span.start, span.end, span.phase, span.micro_batch) for span in stack.spans]
    assert spans == [(0, layers, "forward", 0), (layers, 4 * layers, "backward", 0)]


def test_of_equal_heights_the_first_is_the_peak() -> None:
    account = Story()
    for number in range(3):
        account.free(account.make(5, 1, Phase("forward", micro_batch=number)), 1, FORWARD)
    stack = stack_of(account, levels(account), 4)
    assert stack.at[stack.peak] == 4
    assert stack.where[stack.peak] == "forward micro-batch 2"
