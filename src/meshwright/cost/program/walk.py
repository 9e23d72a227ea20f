"""Walk: a rank's step, action by action, with what is alive at each named instant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from meshwright.cost.program import passes
from meshwright.cost.program.shape import WIDE, Shape
from meshwright.cost.program.weights import Gathered, Weights
from meshwright.cost.schedules import parts as actions_of
from meshwright.cost.schedules import rank_row
from meshwright.cost.schedules.action import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, Action
from meshwright.cost.wire.local import Stage
from meshwright.cost.wire.place import Place
from meshwright.spec.layout import Layout

FORWARD_END, LOSS, HEAD, BLOCK, TABLE, ROOT, STEP = (
    "forward", "loss", "backward of the head", "backward of a block", "backward of the embedding",
    "reduction of the root", "optimizer step",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RankPeak:
    """Bytes of one rank."""

    bytes: float
    instant: str
    parts: Mapping[str, float]
    """At the peak; they add up to it."""
    instants: Mapping[str, float]
    """The most at each named instant."""


@dataclass(frozen=True, slots=True)
class StageBytes:
    """What one stage adds while it is at work."""

    stage: Stage
    weights: Weights
    gathered: Gathered
    activations: float
    """Kept by one micro-batch, without the loss."""
    loss: float
    """Kept by one micro-batch of the last stage: log-probabilities, and in a pipeline the logits."""
    layers: tuple[float, ...]
    """What each layer keeps of `activations`."""
    again: float
    """What a block's backward computes again."""
    block: float
    """What flows through a block's backward."""
    split: float
    """Kept from a micro-batch's input gradient to its weight gradients, beside its activations."""


class Walk:
    """A rank's step, action by action."""

    def __init__(
        self, s: Shape, place: Place, stages: Mapping[int, StageBytes], states: Mapping[str, float], micro_batches: int
    ) -> None:
        self.s, self.place, self.stages, self.states = s, place, stages, states
        self.micro_batches = micro_batches
        self.waiting = 0.0
        """Activations of all micro-batches in flight."""
        self.begun: set[int] = set()
        """Stages that have gradients already."""
        self.found: dict[str, dict[str, float]] = {}

    def peak(self) -> RankPeak:
        """The fullest instant."""
        for action in _actions(self.place, self.micro_batches):
            self._act(self.stages[action.stage], action)
        self._note(STEP, {"gradients": self.states["gradients"], "gathered": self._gathered_at_the_end()})
        totals = {name: sum(parts.values()) for name, parts in self.found.items()}
        instant = max(totals, key=totals.__getitem__)
        held_then = {name: size for name, size in self.found[instant].items() if size}
        return RankPeak(totals[instant], instant, held_then, totals)

    def _act(self, one: StageBytes, action: Action) -> None:
        if action.kind == FORWARD:
            self.waiting += one.activations + one.loss
            logits = passes.loss_forward(self.s) if one.loss else 0.0
            self._note(FORWARD_END, {"activations": -one.loss, "logits": one.loss + logits})
            return
        if action.kind == INPUT_GRADIENT:
            self._backward(one, one.split)
            self.waiting += one.split
            return
        split = one.split if action.kind == WEIGHT_GRADIENT else 0.0
        if not split:
            self._backward(one, 0.0)
        self.waiting -= one.activations + one.loss + split
        self._end_of_backward(one, action)
        self.begun.add(action.stage)

    def _backward(self, one: StageBytes, split: float) -> None:
        s, g = self.s, one.gathered
        if one.loss:
            self._note(LOSS, {"activations": -one.loss, "logits": one.loss + passes.loss_backward(s)})
            self._note(HEAD, {"activations": -one.loss, "logits": passes.head_backward(s, one.weights)})
        head = s.element * one.weights.head if s.layout.zero_stage else 0
        # At first with the block that comes next on its way; at the end with the gradients of this one, too, while
        # those of the two before are on theirs.
        self._note(BLOCK, {
            "activations": 0.0 if split else -one.loss, "recomputed": one.again, "temporary": one.block + split,
            "gathered": sum(g.blocks[-2:]) + head,
        })  # fmt: skip
        left_over = self._left_over()
        before = [g.block_sums[0], g.root_sums] if left_over else []  # of the micro-batch before
        for at in reversed(range(len(g.blocks))):
            freed = {"activations": -one.loss - sum(one.layers[at:])}
            coming = sum(g.blocks[max(at - 1, 0) : at]) + head
            self._note(BLOCK, freed | {
                "gathered": coming + 2 * g.blocks[at], "communication": sum(before[-2:]) - left_over,
            })  # fmt: skip
            # Then its gradients are copied together and summed into this rank's piece.
            piece = g.block_sums[at] * (1 + self.states["gradients"] / (WIDE * one.weights.all))
            self._note(BLOCK, freed | {
                "gathered": coming, "communication": sum(before[-1:]) + piece - left_over,
            })  # fmt: skip
            before.append(g.block_sums[at])

    def _end_of_backward(self, one: StageBytes, action: Action) -> None:
        """What a stage's backward leaves to the last: the embedding's gradient, and the sums of the root."""
        s, w, g = self.s, one.weights, one.gathered
        table = passes.table_backward(s, w, tied=s.model.tied_embeddings)
        # Copies that autocast made before this micro-batch come last in its backward: until then their gradients wait.
        narrow = s.element * (w.all - w.table) if s.casts and s.layout.stages > 1 else 0
        first = action.stage not in self.begun
        copied = WIDE * w.matrix if s.casts else 0  # one after the other they become fp32
        more = {"temporary": max(table, copied) + narrow, "gradients": self._shards(one) if first else 0.0}
        if not s.layout.zero_stage or s.layout.stages > 1:
            self._note(TABLE, more)
            return
        last = action.micro_batch == self.micro_batches - 1
        if first and (s.layout.zero_stage > 1 or last):
            more["gradients"] = self.states["gradients"] * (1 - w.root / w.all)
        sums = g.sums and WIDE * ((0 if last else w.all) - (w.root if first else 0) + (w.root if last else 0))
        sums = max(sums, 0) - (0 if first else g.sums)
        self._note(TABLE, more | {"gathered": sums, "communication": sum(g.block_sums[:2]) - self._left_over()})
        freed = g.forward if s.layout.zero_stage == 3 else 0
        self._note(ROOT, more | {
            "temporary": passes.root_reduced(s, w), "gathered": sums - freed,
            "communication": sum(g.block_sums[:1]) - self._left_over(),
        })  # fmt: skip

    def _shards(self, one: StageBytes) -> float:
        """Gradients that a stage's first backward makes; DDP's buckets were there before."""
        layout = self.s.layout
        if layout.zero_stage:
            return self.states["gradients"] if layout.zero_stage > 1 and layout.stages == 1 else 0.0
        return 0.0 if layout.stages == 1 and layout.data * layout.context > 1 else float(WIDE * one.weights.all)

    def _note(self, instant: str, more: Mapping[str, float]) -> None:
        """Keep the fullest of an instant's occurrences."""
        now = {
            "parameters": self.states["parameters"], "gradients": self._gradients(),
            "optimizer": self.states["optimizer"], "activations": self.waiting, "gathered": self._gathered(),
            "communication": self._messages() + self._left_over(), "casts": self._casts(),
        }  # fmt: skip
        if instant == STEP:
            now |= {"gradients": 0.0, "activations": 0.0, "gathered": 0.0}
            now["communication"] = self._messages()
        for name, size in more.items():
            now[name] = now.get(name, 0.0) + size
        if sum(now.values()) > sum(self.found.get(instant, {}).values()):
            self.found[instant] = now

    def _gradients(self) -> float:
        """DDP's buckets are there at all times; elsewhere gradients appear in a stage's first backward."""
        layout = self.s.layout
        if not layout.zero_stage and layout.stages == 1 and layout.data * layout.context > 1:
            return self.states["gradients"]
        return sum(self._shards(self.stages[index]) for index in self.begun)

    def _gathered(self) -> float:
        sums = sum(self.stages[index].gathered.sums for index in self.begun)
        return sum(one.gathered.forward for one in self.stages.values()) + sums

    def _gathered_at_the_end(self) -> float:
        """Stages 1 and 2 give parameters back after the optimizer."""
        layout = self.s.layout
        kept_until = layout.zero_stage in (1, 2) or layout.stages > 1
        return sum(one.gathered.forward for one in self.stages.values()) if kept_until else 0.0

    def _left_over(self) -> float:
        """FSDP2: the root's buffer of the micro-batch before, and one block's."""
        layout = self.s.layout
        if layout.zero_stage < 2 or layout.stages > 1 or not self.begun:
            return 0.0
        return float(sum(one.gathered.root_sums + sum(one.gathered.block_sums[:1]) for one in self.stages.values()))

    def _casts(self) -> float:
        """In a pipeline autocast keeps the narrow copies of weights from the first micro-batch to the last."""
        s = self.s
        if s.layout.stages == 1 or not s.casts:
            return 0.0
        return float(sum(s.element * (one.weights.all - one.weights.table) for one in self.stages.values()))

    def _messages(self) -> float:
        """PyTorch's pipeline keeps what comes from each neighbour, for every micro-batch of a step."""
        return float(_message_buffers(self.place) * self.micro_batches * self.s.hidden)


def _message_buffers(place: Place) -> int:
    """Hidden states that a pipeline rank holds for each micro-batch at all times: one for each neighbour of a stage.

    What comes from a stage of the same rank is held in the place of a buffer (PyTorch's `set_local_fwd_input`).
    """
    last = place.layout.stages - 1
    return sum((stage > 0) + (stage < last) for stage in place.stages) if last else 0


def _actions(place: Place, micro_batches: int) -> Iterator[Action]:
    layout = place.layout
    if layout.stages == 1:
        for index in {*range(min(micro_batches, 2)), micro_batches - 1}:  # those between do what the second does
            yield Action(0, FORWARD, index)
            yield Action(0, BACKWARD, index)
        return
    row = rank_row(layout.schedule, place.pipeline, layout.pipeline, micro_batches, layout.virtual_stages)
    for cell in row:
        for action in actions_of(cell):
            yield from _as_run(action, layout)


def _as_run(action: Action, layout: Layout) -> Iterator[Action]:
    """A split backward as it is run: whole in its first half where blocks are recomputed, in its second on stage 0.

    The first stage has no input whose gradient anybody waits for.
    """
    if action.kind not in (INPUT_GRADIENT, WEIGHT_GRADIENT):
        yield action
    elif layout.recompute == "full" or action.stage == 0:
        if action.kind == (INPUT_GRADIENT if layout.recompute == "full" else WEIGHT_GRADIENT):
            yield Action(action.stage, BACKWARD, action.micro_batch)
    else:
        yield action
