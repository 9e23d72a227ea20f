"""Places: which phase of a step runs, and which module, also in backward.

Phases are the ranges that the program names itself (`modes.ranges`). In forward a module is the innermost one that is
being called; in backward it is the one whose forward made the node of the graph that runs now.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as hooks

from meshwright.modes.ranges import watch

NOWHERE = ""


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a step."""

    name: str
    """forward, backward, input, weight, reduce, clip, optimizer; "" between them."""
    stage: int | None = None
    micro_batch: int | None = None

    def __str__(self) -> str:
        words = [self.name or "between phases"]
        words += [] if self.stage is None else [f"stage {self.stage}"]
        words += [] if self.micro_batch is None else [f"micro-batch {self.micro_batch}"]
        return " ".join(words)

    @property
    def backward(self) -> bool:
        """Whether gradients are being computed."""
        return self.name in ("backward", "input", "weight")


FORWARD, BACKWARD, UPDATE = Phase("forward"), Phase("backward"), Phase("optimizer")


class Places:
    """Follows the program while entered."""

    def __init__(self, *, infer: bool = False) -> None:
        self._infer = infer
        self._phase = Phase(NOWHERE)
        self._phases: list[Phase] = []
        self._modules: list[str] = []
        self._names: dict[int, str] = {}
        self._starts: list[int] = []
        """Numbers of nodes of the graph from which on another module made them."""
        self._makers: list[str] = []
        self._off: list[Any] = []

    def name(self, modules: Iterable[nn.Module]) -> None:
        """Call the parts of these by their path; known by nobody else, they stay nameless."""
        for whole in modules:
            for path, module in whole.named_modules():
                self._names.setdefault(id(module), path)

    @property
    def phase(self) -> Phase:
        """What the program calls this part of the step; with `infer`, else what the state of autograd says."""
        if self._phase.name or not self._infer:
            return self._phase
        if torch._C._current_autograd_node() is not None:
            return BACKWARD
        # Inside of a function with its own backward no gradient is recorded; a module that runs tells it apart.
        return FORWARD if self._modules or torch.is_grad_enabled() else UPDATE

    @property
    def module(self) -> str:
        """Path of the module at work; "" outside of all."""
        if self._modules:
            return self._modules[-1]
        node = torch._C._current_autograd_node()
        if node is None or not self._starts:
            return NOWHERE
        at = bisect_right(self._starts, node._sequence_nr()) - 1
        return self._makers[at] if at >= 0 else NOWHERE

    @property
    def called(self) -> bool:
        """Whether a module is being called."""
        return bool(self._modules)

    def __enter__(self) -> Places:
        self._off = [
            hooks.register_module_forward_pre_hook(self._enter),
            hooks.register_module_forward_hook(self._leave, always_call=True),
        ]
        watch(self._begin, self._end)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        watch(None, None)
        for handle in self._off:
            handle.remove()

    def _enter(self, module: nn.Module, _: Any) -> None:
        path = self._names.get(id(module))
        self._modules.append(path if path is not None else (self._modules[-1] if self._modules else NOWHERE))
        self._mark()

    def _leave(self, module: nn.Module, _: Any, __: Any) -> None:
        if self._modules:
            self._modules.pop()
        self._mark()

    def _mark(self) -> None:
        """Nodes of the graph that are made from now on belong to the module that is innermost now."""
        now = torch._C._autograd._get_sequence_nr()
        maker = self._modules[-1] if self._modules else NOWHERE
        if self._starts and self._starts[-1] == now:
            self._makers[-1] = maker
        else:
            self._starts.append(now)
            self._makers.append(maker)

    def _begin(self, name: str, stage: int | None, micro_batch: int | None) -> None:
        self._phases.append(self._phase)
        self._phase = Phase(name, stage, micro_batch)

    def _end(self) -> None:
        self._phase = self._phases.pop()
