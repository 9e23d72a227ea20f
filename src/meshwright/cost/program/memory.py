"""Memory of one rank of our own program: its peak, the instant, and the parts, by walking through what the rank does.

States: ZeRO, arXiv:1910.02054 figure 1. Activations: `kept`, as many at once as the schedule leaves waiting. The rest
is what backward makes and drops (`passes`) and what FSDP2 gathers (`weights`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from meshwright.cost.program import kept, passes
from meshwright.cost.program.shape import WIDE, Shape
from meshwright.cost.program.weights import Gathered, Weights, gathered_of, weights_of
from meshwright.cost.schedules import parts as actions_of
from meshwright.cost.schedules import placement, table
from meshwright.cost.schedules.action import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, Action
from meshwright.cost.wire.held import held
from meshwright.cost.wire.local import Stage, stages_of
from meshwright.cost.wire.place import Place
from meshwright.spec.layout import Layout
from meshwright.spec.model import Model
from meshwright.spec.workload import Workload

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
class _Stage:
    """What one stage adds while it is at work."""

    stage: Stage
    weights: Weights
    gathered: Gathered
    activations: float
    """Kept by one micro-batch, without the loss."""
    loss: float
    """Kept by one micro-batch of the last stage: log-probabilities, and in a pipeline the logits."""
    layer: float
    """The least that one layer keeps of `activations`."""
    again: float
    """What a block's backward computes again."""
    block: float
    """What flows through a block's backward."""
    split: float
    """Kept from a micro-batch's input gradient to its weight gradients, beside its activations."""


def rank_peak(
    model: Model, workload: Workload, layout: Layout, rank: int, micro_batches: int, optimizer: str, *, gpu: bool
) -> RankPeak:
    """The peak of a step that is not the first. Raises ModelError for a model that the Decoder does not compute."""
    s, place = Shape.of(model, workload, layout, gpu=gpu), Place(layout, rank)
    stages = {one.index: _stage(s, one, place, micro_batches) for one in stages_of(model, place)}
    states = {name: size or 0.0 for name, size in held(model, layout, rank, optimizer).items()}
    return _Walk(s, place, stages, states, micro_batches).peak()


def rank_kept(model: Model, workload: Workload, layout: Layout, rank: int, *, gpu: bool) -> float:
    """Bytes that one micro-batch's forward leaves for backward in all stages of a rank."""
    s, place = Shape.of(model, workload, layout, gpu=gpu), Place(layout, rank)
    stages = [_stage(s, one, place, 1) for one in stages_of(model, place)]
    total = sum(one.activations for one in stages)
    if layout.stages == 1:
        return total + stages[0].loss
    where = placement(layout.schedule, layout.pipeline, layout.virtual_stages)
    for one in stages:
        index = one.stage.index
        # What a stage receives lies in a buffer; what it gives is held until its backward, but for logits under 1F1B,
        # whose backward comes next.
        if index and where[index - 1] != where[index]:
            total -= s.hidden
        if index + 1 < layout.stages:
            total += s.hidden if where[index + 1] != where[index] else 0
        elif layout.schedule != "1f1b":
            total += passes.logits_held(s)
    return total


def _stage(s: Shape, stage: Stage, place: Place, micro_batches: int) -> _Stage:
    layers = [kept.layer_kept(s, layer) for layer in stage.layers]
    first, last = stage.index == 0, stage.index == s.layout.stages - 1
    inner = sum(one.under(s.layout.recompute) for one in layers) + kept.tables_kept(s)
    inner += kept.embedding_kept(s) if first else 0
    inner += kept.head_kept(s) if last else 0
    weights = weights_of(s, stage, place)
    widths = [_width(s, layer) for layer in stage.layers]
    ends = passes.logits_held(s) + s.entered if last else 0
    return _Stage(
        stage,
        weights,
        gathered_of(s, weights, adds_up=micro_batches > 1),
        activations=inner,
        loss=kept.loss_kept(s) + passes.logits_held(s) if last else 0.0,
        layer=min((one.under(s.layout.recompute) for one in layers), default=0),
        again=max((one.whole - one.under(s.layout.recompute) for one in layers), default=0),
        block=max(passes.attention_backward(s), *(passes.block_backward(s, width) for width in widths), 0),
        split=sum(passes.split_waits(s, width) for width in widths) + ends,
    )


def _width(s: Shape, layer: int) -> int:
    """Inner width a token of a layer's feed-forward part on one rank."""
    m, e = s.model, s.model.experts
    if e is None or not m.is_moe_layer(layer):
        return m.ffn_hidden // s.layout.tensor
    return (e.ffn_hidden * e.per_token + e.shared_ffn_hidden) // s.layout.tensor


class _Walk:
    """A rank's step, action by action."""

    def __init__(
        self, s: Shape, place: Place, stages: Mapping[int, _Stage], states: Mapping[str, float], micro_batches: int
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

    def _act(self, one: _Stage, action: Action) -> None:
        if action.kind == FORWARD:
            self.waiting += one.activations + one.loss
            logits = passes.loss_forward(self.s) if one.loss else 0.0
            self._note(FORWARD_END, {"activations": -one.loss, "logits": one.loss + logits})
            return
        whole = action.kind == BACKWARD or self.s.layout.recompute == "full"  # then a backward is not split
        if action.kind in (BACKWARD, INPUT_GRADIENT):
            self._backward(one, 0.0 if whole else one.split)
            self.waiting += -one.activations - one.loss if whole else one.split
        elif not whole:
            self.waiting -= one.activations + one.loss + one.split
        if action.kind != (WEIGHT_GRADIENT if whole else INPUT_GRADIENT):
            self._end_of_backward(one, action)
            self.begun.add(action.stage)

    def _backward(self, one: _Stage, split: float) -> None:
        s, g = self.s, one.gathered
        if one.loss:
            self._note(LOSS, {"activations": -one.loss, "logits": one.loss + passes.loss_backward(s)})
            self._note(HEAD, {"activations": -one.loss, "logits": passes.head_backward(s, one.weights)})
        head = s.element * one.weights.head if s.layout.zero_stage else 0
        # At first with the block that comes next on its way; at the end with the gradients of this one, too, while
        # those of the two before are on theirs.
        self._note(BLOCK, {
            "activations": 0.0 if split else -one.loss, "recomputed": one.again, "temporary": one.block + split,
            "gathered": 2 * g.block + head,
        })  # fmt: skip
        for done in range(min(len(one.stage.layers), 3) if g.block else 0):
            sums = 0.0 if self._left_over() else float(done * g.block_sums)
            freed = one.loss + (done + 1) * one.layer
            self._note(BLOCK, {"activations": -freed, "gathered": 3 * g.block + head, "communication": sums})

    def _end_of_backward(self, one: _Stage, action: Action) -> None:
        """What a stage's backward leaves to the last: the embedding's gradient, and the sums of the root."""
        s, w, g = self.s, one.weights, one.gathered
        table = passes.table_backward(s, w, tied=s.model.tied_embeddings)
        # Copies that autocast made before this micro-batch come last in its backward: until then their gradients wait.
        narrow = s.element * (w.all - w.table) if s.casts and s.layout.stages > 1 else 0
        first = action.stage not in self.begun
        more = {"temporary": table + narrow, "gradients": self._shards(one) if first else 0.0}
        if not s.layout.zero_stage or s.layout.stages > 1:
            self._note(TABLE, more)
            return
        last = action.micro_batch == self.micro_batches - 1
        if first and (s.layout.zero_stage > 1 or last):
            more["gradients"] = self.states["gradients"] * (1 - w.root / w.all)
        sums = g.sums and WIDE * ((0 if last else w.all) - (w.root if first else 0) + (w.root if last else 0))
        sums = max(sums, 0) - (0 if first else g.sums)
        self._note(TABLE, more | {"gathered": sums, "communication": 2.0 * g.block_sums - self._left_over()})
        freed = g.forward if s.layout.zero_stage == 3 else 0
        self._note(ROOT, more | {
            "temporary": passes.root_reduced(s, w), "gathered": sums - freed,
            "communication": g.block_sums - self._left_over(),
        })  # fmt: skip

    def _shards(self, one: _Stage) -> float:
        """Gradients that a stage's first backward makes; DDP's buckets were there before."""
        layout = self.s.layout
        if layout.zero_stage:
            return self.states["gradients"] if layout.zero_stage > 1 and layout.stages == 1 else 0.0
        return 0.0 if layout.stages == 1 and layout.data * layout.context > 1 else 4.0 * one.weights.shards

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
        return float(sum(one.gathered.root_sums + one.gathered.block_sums for one in self.stages.values()))

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
    row = table(layout.schedule, layout.pipeline, micro_batches, layout.virtual_stages)[place.pipeline]
    for cell in row:
        yield from actions_of(cell)
