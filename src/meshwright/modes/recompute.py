"""Activation checkpointing (arXiv:1604.06174; selective: arXiv:2205.05198 section 5).

Full: a block keeps its input alone and runs its forward again in backward: a third more FLOPs, and the block's
collectives again. Selective: the attention core (scores, softmax, weighted sum) runs again, nothing else.
Use selective first; full where memory is short and FLOPs are not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from meshwright.modes.cuts import matching
from meshwright.modes.recipe import Recipe


def apply_recompute(model: nn.Module, kind: str, recipe: Recipe) -> None:
    """Run again in backward what `kind` ("none", "selective", "full") does not keep.

    Methods are replaced and modules stay, so that no parameter changes its name.
    """
    if kind == "full":
        for _, block in matching(model, recipe.blocks):
            block.forward = _again(block.forward, recipe.draws)
    elif kind == "selective" and recipe.core:
        for _, module in matching(model, recipe.core):
            module.core = _again(module.core, recipe.draws)  # type: ignore[assignment, arg-type]


def _again(function: Callable[..., Any], draws: bool) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(function, *args, use_reentrant=False, preserve_rng_state=draws, **kwargs)

    run.again = True  # type: ignore[attr-defined]
    return run


def is_recomputed(function: object) -> bool:
    """Whether it is a method that `apply_recompute` has replaced."""
    return getattr(function, "again", False) is True
