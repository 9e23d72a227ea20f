"""The optimizer of a rank's Parts, whatever layout cut them: same numbers as one process, states by box."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from meshwright.modes.parts import Part
from meshwright.train.optim.adafactor import Adafactor
from meshwright.train.optim.config import OptimConfig, OptimizerError
from meshwright.train.optim.engine import Engine
from meshwright.train.optim.lamb import Lamb
from meshwright.train.optim.leaf import Leaf, make_leaf
from meshwright.train.optim.muon import Muon
from meshwright.train.optim.native import Native

_COLLAPSED = {"row_var": -1, "col_var": -2}
"""States that have one element along a dimension of the parameter."""
_SCALARS = ("step",)


@dataclass(frozen=True, eq=False)
class StatePart:
    """This rank's box of one state of one parameter: to be saved, and read under another layout, like a Part."""

    state: str
    """exp_avg, exp_avg_sq, momentum_buffer, row_var, col_var, variance, master or step (a scalar: all tuples empty)."""
    part: Part
    tensor: Tensor
    """The live tensor, of shape `size`: fill it to load, then call `PartOptimizer.loaded`."""
    shape: tuple[int, ...]
    """Of the whole state."""
    offset: tuple[int, ...]
    size: tuple[int, ...]

    @property
    def key(self) -> str:
        """Its name in a checkpoint, the same on every rank and under every layout; unique but for tied copies."""
        return f"{self.part.name}.{self.state}"


class PartOptimizer:
    """Updates Parts from their gradients. A Part without gradient in a step is left alone, as in torch.optim.

    `make_optimizer`, and `step` of adafactor, lamb and muon, are collective over each Part's group.
    """

    def __init__(self, parts: Sequence[Part], engines: Sequence[Engine], config: OptimConfig) -> None:
        self.config = config
        self.lr = config.lr
        """The rate of the next step."""
        self._parts = list(parts)
        self._engines = list(engines)

    def step(self) -> None:
        """One update of every Part that has a gradient; gradients stay as they are."""
        for engine in self._engines:
            engine.step()

    def zero_grad(self, *, keep: bool = False) -> None:
        """Drop the modules' gradients, or with `keep` fill them with zeros where they are."""
        if not keep:
            for part in self._parts:
                part.parameter.grad = None
            return
        with torch.no_grad():
            held = [part.parameter.grad for part in self._parts if part.parameter.grad is not None]
            torch._foreach_zero_([grad.to_local() if isinstance(grad, DTensor) else grad for grad in held])

    def set_lr(self, lr: float) -> None:
        """Use the rate `lr`; other rates (muon's `table_lr`) move in proportion."""
        self.lr = lr
        for engine in self._engines:
            engine.set_lr(lr * engine.peak / self.config.lr if self.config.lr else lr)

    @torch.no_grad()
    def state_parts(self) -> list[StatePart]:
        """Every state of every Part that this rank holds something of, made now if there is none yet."""
        states: list[StatePart] = []
        for engine in self._engines:
            for leaf in engine.leaves:
                if leaf.tensor.numel():
                    leaf.follow()
                    named = {"master": leaf.tensor.detach()} if leaf.master else {}
                    named.update(engine.states(leaf))
                    states += [_state_part(name, leaf.part, tensor) for name, tensor in named.items()]
        return states

    @torch.no_grad()
    def load_state(self, values: Mapping[str, Tensor]) -> None:
        """Copy `values` (by StatePart.key, this rank's boxes) into the states; extra keys are another rank's.

        Raises OptimizerError before anything is changed where a state is missing or of another shape.
        """
        states = self.state_parts()
        for state in states:
            value = values.get(state.key)
            if value is None:
                raise OptimizerError(
                    f"The saved optimizer has no {state.key!r}: it was not {self.config.name}'s state."
                )
            if tuple(value.shape) != state.size:
                raise OptimizerError(
                    f"The saved {state.key!r} has shape {tuple(value.shape)}; this layout needs {state.size}."
                )
        for state in states:
            state.tensor.copy_(values[state.key])
        self.loaded()

    @torch.no_grad()
    def loaded(self) -> None:
        """Call after the tensors of `state_parts` were filled in place, which `load_state` does by itself."""
        for engine in self._engines:
            engine.loaded()


@torch.no_grad()
def make_optimizer(
    parts: Sequence[Part], config: OptimConfig, *, master: torch.dtype | None = None, host: bool = False
) -> PartOptimizer:
    """The optimizer that `config` names, over the Parts that learn (`requires_grad`).

    `master`: keep a copy of the parameters in this dtype and update that (float32 for parameters of 16 bit; 4 bytes a
    parameter, arXiv:1710.03740 section 3.1). `host`: keep it and all states in host memory (arXiv:2101.06840).
    Collective over each Part's group; Parts in the same order on all its ranks.
    """
    config = config.resolved()
    leaves = [make_leaf(part, master=master, host=host) for part in parts if part.parameter.requires_grad]
    return PartOptimizer(parts, _engines(leaves, config), config)


def _engines(leaves: Sequence[Leaf], config: OptimConfig) -> list[Engine]:
    match config.name:
        case "adafactor":
            return [Adafactor(leaves, config, config.lr)]
        case "lamb":
            return [Lamb(leaves, config, config.lr)]
        case "muon":
            own = [leaf for leaf in leaves if config.orthogonalised(leaf.part)]
            rest = [leaf for leaf in leaves if not config.orthogonalised(leaf.part)]
            table_lr = config.lr if config.table_lr is None else config.table_lr
            return [Muon(own, config, config.lr), Native(rest, config, table_lr, "adamw")]
    return [Native(leaves, config, config.lr, config.name)]


def _state_part(name: str, part: Part, tensor: Tensor) -> StatePart:
    if name in _SCALARS:
        return StatePart(name, part, tensor, (), (), ())
    shape, offset, size = list(part.shape), list(part.offset), list(part.size)
    if name in _COLLAPSED:
        dim = _COLLAPSED[name]
        shape[dim], offset[dim], size[dim] = 1, 0, 1
    return StatePart(name, part, tensor, tuple(shape), tuple(offset), tuple(size))
