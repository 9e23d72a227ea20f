"""Why an allocation on a device failed: one verdict for each failure, the surest that its numbers and frames carry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from meshwright.diagnose.finding import CERTAIN, LIKELY, POSSIBLE
from meshwright.diagnose.memory import advice
from meshwright.diagnose.memory.capacity import Saving, State, too_large
from meshwright.diagnose.memory.facts import Failure
from meshwright.diagnose.memory.job import Job
from meshwright.diagnose.memory.logits import guesses, matched
from meshwright.diagnose.memory.oom import Oom
from meshwright.diagnose.memory.sizes import GIB, percent, shown

FRAGMENTED = 0.10
"""Reserved and unallocated, of allocated: above it and above the request, blocks of the wrong size may be the cause."""
HALF_EMPTY = 0.50
"""… above it they likely are: a third of the reserve is in no tensor. (trl#3436: 39 %, out of capacity.)"""
FULL = 0.05
"""… below it nothing is left to be defragmented."""
MOSTLY = 0.75
"""Of the capacity: with less in the job's own tensors, something else on the device may be what is too large."""
OTHERS_SHARE, OTHERS_BYTES = 0.15, 2 * GIB
"""Of the capacity, and at least so much: what other processes hold beyond contexts of their own."""
ALTERNATIVES = ("oom_logits", "oom_rank0_skew")
"""Causes that are told beside a likely one: they say why so much is in tensors."""
LARGE = 0.03
"""Of the capacity: a failed tensor of the loss above it is worth doing away with."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One cause of one failure."""

    category: str
    confidence: str
    cause: str
    change: tuple[str, ...]
    confirm: str
    weight: int


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known beside a failure's own lines."""

    job: Job
    state: State | None
    savings: Sequence[Saving]
    only_first: bool
    """Several ranks are known, and only those with device 0 failed."""
    resumed: bool


def verdicts(one: Failure, around: Surroundings) -> Iterator[Verdict]:
    """The likely cause and what may be behind it; where none is likely, every possible one."""
    found = [*_others(one, around), *_checkpoint(one, around), *_logits(one, around), *_allocator(one, around)]
    sure = [verdict for verdict in found if verdict.confidence != POSSIBLE]
    yield from sure[:1] or found
    if sure:
        yield from (verdict for verdict in found if verdict.category in ALTERNATIVES and verdict not in sure)


def _at(one: Failure) -> str:
    return {
        "save": " while a checkpoint was saved",
        "load": " while a checkpoint was loaded",
        "optimizer": " in the optimizer's step",
        "backward": " in the backward pass",
        "build": " while the model was put on the device",
        "forward": " in the forward pass",
    }.get(one.place.phase, "")


def _asked(oom: Oom) -> str:
    return f"a request of {shown(oom.request)}" if oom.request is not None else "an allocation"


def _others(one: Failure, around: Surroundings) -> Iterator[Verdict]:
    """Memory that other processes hold on the device."""
    oom = one.oom
    if not oom.capacity or not oom.others or oom.others < max(OTHERS_BYTES, OTHERS_SHARE * oom.capacity):
        return
    held = f"{shown(oom.others)} of {shown(oom.capacity)} ({percent(oom.others, oom.capacity)})"
    if oom.device == 0 and (around.only_first or (around.resumed and one.line.rank != 0)):
        yield Verdict(
            "oom_rank0_skew", LIKELY,
            f"Other processes hold {held} of GPU 0, which more than one rank uses.",
            advice.FIRST_DEVICE, "nvidia-smi shows the same process id on GPU 0 and on another one.", 4,
        )  # fmt: skip
    else:
        yield Verdict(
            "oom_capacity", LIKELY,
            f"Other processes hold {held} of the device, so {_asked(oom)} failed{_at(one)}.",
            advice.OTHER_PROCESSES, "nvidia-smi lists the processes of this GPU: some may be of an earlier run.", 3,
        )  # fmt: skip


def _checkpoint(one: Failure, around: Surroundings) -> Iterator[Verdict]:
    """A state dict that is gathered or loaded beside the model."""
    phase, asked = one.place.phase, _asked(one.oom)
    if phase == "load" and around.only_first:
        yield Verdict(
            "oom_rank0_skew", LIKELY, f"Only the rank of GPU 0 failed, {asked}, while a checkpoint was loaded: every "
            "rank loads its tensors to the device that they were saved from.",
            advice.FIRST_DEVICE, "nvidia-smi shows the same process id on GPU 0 and on another one.", 4,
        )  # fmt: skip
    elif phase == "save":
        corrupt = any("Failed to clone() tensor" in text for text in (one.line.text, *one.before, *one.after))
        broken = "; the checkpoint that was written is incomplete" if corrupt else ""
        yield Verdict(
            "oom_checkpoint", LIKELY, f"The full state dict is gathered on a device that training already fills: "
            f"{asked} failed while a checkpoint was saved{broken}.",
            advice.SAVE, "Memory steps up at each save; with a sharded state dict it does not.", 3,
        )  # fmt: skip
    elif phase == "load":
        yield Verdict(
            "oom_checkpoint", LIKELY, f"A checkpoint is loaded to the device beside the model: {asked} failed.",
            advice.LOAD, "With map_location='cpu' the same load succeeds.", 3,
        )  # fmt: skip
    elif around.resumed:
        yield Verdict(
            "oom_rank0_skew", POSSIBLE, f"The job ran out of memory after it resumed ({asked}): the loaded checkpoint "
            "may still be held, or every rank loaded it to GPU 0.",
            advice.FIRST_DEVICE, "nvidia-smi shows the same process id on more than one GPU.", 2,
        )  # fmt: skip


def _logits(one: Failure, around: Surroundings) -> Iterator[Verdict]:
    """Logits, by arithmetic where the job is known, else by the frames."""
    oom, head = one.oom, one.place.head
    if oom.request is None:
        return
    if (match := matched(oom, around.job)) is not None:
        yield Verdict(
            "oom_logits", CERTAIN if head else LIKELY,
            f"The tensor that did not fit is the logits: {match.formula} = {shown(oom.request)}{_at(one)}.",
            advice.LOGITS, "A shorter sequence changes the request in proportion.", 5,
        )  # fmt: skip
    elif head and oom.capacity and oom.request >= LARGE * oom.capacity:
        yield Verdict(
            "oom_logits", LIKELY, f"The loss or the language-model head asked for {shown(oom.request)}, "
            f"{percent(oom.request, oom.capacity)} of the device{_at(one)}: tokens x vocabulary in one tensor.",
            advice.LOGITS, "tokens of a micro-batch x vocabulary x 2 or 4 bytes is the request.", 4,
        )  # fmt: skip
    elif _may_be_logits(one) and (told := list(dict.fromkeys(guesses(oom)))):
        yield Verdict(
            "oom_logits", POSSIBLE,
            f"The request of {shown(oom.request)} has the size of logits: {' or '.join(told[:3])}.",
            advice.LOGITS, "Compare with the model's vocab_size and the tokens of a micro-batch.", 0,
        )  # fmt: skip


def _may_be_logits(one: Failure) -> bool:
    """Whether the frames leave it open what was asked for."""
    return one.place.phase in ("", "backward") or "logits" in one.place.text


def _allocator(one: Failure, around: Surroundings) -> Iterator[Verdict]:
    """Fragmentation against true capacity, and the possible ones where the text does not decide."""
    oom, cause = one.oom, too_large(around.state, one.oom)
    if oom.allocated is None or oom.request is None:
        yield _capacity(
            one,
            around,
            LIKELY if cause else POSSIBLE,
            f"the model's state alone: {cause}" if cause else "the text tells no numbers that decide why",
            bool(cause),
        )
        return
    spare, needs = oom.unallocated or 0.0, oom.allocated + oom.request + (oom.others or 0.0)
    if oom.allowed is not None and oom.free is not None and oom.free > oom.request:
        yield _capacity(one, around, LIKELY, f"the program limits itself to {shown(oom.allowed)} of the device")
    elif oom.free is not None and oom.free > oom.request:
        yield Verdict(
            "oom_capacity", POSSIBLE, f"A{_asked(oom)[1:]} failed{_at(one)} though the driver had "
            f"{shown(oom.free)} free: a limit, a driver that cannot map it, or a process that has ended since.",
            advice.OTHER_PROCESSES, "Allocate the same size in a fresh process on this GPU.", 1,
        )  # fmt: skip
    elif cause:
        yield _capacity(one, around, LIKELY, f"the model's state alone: {cause}", of_state=True)
    elif oom.capacity and needs > oom.capacity:
        yield _capacity(
            one, around, CERTAIN if oom.request > oom.capacity else LIKELY,
            f"{shown(oom.allocated)} in tensors and the request are more than the {shown(oom.capacity)} of the device",
        )  # fmt: skip
    elif spare >= oom.request and spare > FRAGMENTED * oom.allocated:
        # The text does not say in how large blocks the free memory lies: a snapshot would.
        yield _fragmentation(oom, POSSIBLE, _at(one))
        if spare <= HALF_EMPTY * oom.allocated:
            yield _capacity(one, around, POSSIBLE, f"{shown(oom.allocated)} are in tensors")
    elif spare < FULL * oom.allocated:
        full = not oom.capacity or oom.allocated >= MOSTLY * oom.capacity
        yield _capacity(
            one, around, LIKELY if full else POSSIBLE,
            f"{shown(oom.allocated)} are in tensors and {shown(spare)} ({percent(spare, oom.allocated)}) are "
            "reserved in vain",
        )  # fmt: skip
    else:
        yield _capacity(
            one, around, POSSIBLE, f"{shown(oom.allocated)} are in tensors, {shown(spare)} reserved in vain"
        )


def _fragmentation(oom: Oom, confidence: str, where: str) -> Verdict:
    assert oom.request is not None
    assert oom.allocated is not None
    spare = oom.unallocated or 0.0
    return Verdict(
        "fragmentation", confidence,
        f"{shown(spare)} are reserved and in no tensor ({percent(spare, oom.allocated)} of what is allocated), more "
        f"than the {shown(oom.request)} that failed{where}: free memory lies in blocks of the wrong size.",
        advice.FRAGMENTATION, "A memory snapshot: inactive blocks sum to more than the request, none is as large.",
        2,
    )  # fmt: skip


def _capacity(one: Failure, around: Surroundings, confidence: str, why: str, of_state: bool = False) -> Verdict:
    """A full device. `of_state`: the model's state fills it, so that only what shrinks the state is advised."""
    oom = one.oom
    full = f" on a device of {shown(oom.capacity)}" if oom.capacity else ""
    spare = oom.unallocated
    idle = spare is not None and oom.allocated and spare < FULL * oom.allocated
    return Verdict(
        "oom_capacity", confidence, f"The device is full: {_asked(oom)} failed{_at(one)}{full}; {why}.",
        (
            *(saving.text for saving in around.savings if saving.of_state or not of_state),
            *(advice.STATE if of_state else advice.capacity(one.place.phase)),
            *((advice.NO_SETTING,) if idle else ()),
        ),
        "Estimate the layout (`meshwright estimate`) or take a memory snapshot at the failure.", 1,
    )  # fmt: skip
