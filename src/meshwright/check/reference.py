"""Reference: the same steps in one process, in plain PyTorch, with none of the modes' code."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from meshwright.check.case import Case, global_batch
from meshwright.train.batch import IGNORED
from meshwright.train.models.build import build_model, load_architecture
from meshwright.train.models.init import init_module
from meshwright.train.models.moe import Moe
from meshwright.train.optim.config import DEFAULTS


def write_reference(case: Case, path: str) -> dict[str, Any]:
    """Run `case` in this process; gradients and parameters of each step go to `path`.

    Returns loss and gradient norm of each step, each parameter's shape, and sums of token losses and counts of targets
    by sequence of the first step. `read_reference` reads the file.
    """
    architecture = load_architecture(case.model)
    model = build_model(architecture, device="cpu", dtype=case.torch_dtype)
    init_module(model, case.seed)
    for module in model.modules():
        if isinstance(module, Moe):
            module.balance_scale = 1 / case.global_batch
    named = dict(model.named_parameters())
    optimizer = _adamw(case, named)
    gradients, parameters = [], [_flat(named.values())]
    losses, norms, sums, counts = [], [], [], []
    for step in range(case.steps):
        batch = global_batch(case, step, architecture.model.vocab)
        logits = model(batch.tokens, batch.positions, batch.documents)
        losses_of = F.cross_entropy(
            logits, batch.targets.flatten(), ignore_index=IGNORED, reduction="none"
        ).view_as(batch.targets)  # fmt: skip
        loss = losses_of.sum() / batch.target_tokens
        loss.backward()  # type: ignore[no-untyped-call]
        gradients.append(_flat(torch.zeros_like(p) if p.grad is None else p.grad for p in named.values()))
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), case.max_norm)))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        parameters.append(_flat(named.values()))
        if step == 0:
            sums, counts = losses_of.sum(1).tolist(), (batch.targets != IGNORED).sum(1).tolist()
    shapes = {name: tuple(p.shape) for name, p in named.items()}
    torch.save({"shapes": shapes, "gradients": gradients, "parameters": parameters}, Path(path))
    return {"loss": losses, "grad_norm": norms, "shapes": shapes, "sums": sums, "counts": counts}


@dataclass(frozen=True)
class Known:
    """The reference's numbers by parameter."""

    gradients: list[dict[str, Tensor]]
    """Of each step, before the clip."""
    parameters: list[dict[str, Tensor]]
    """Before the first step and after each."""


def read_reference(path: str) -> Known:
    """The file that `write_reference` wrote; its numbers are read when they are looked at."""
    file = torch.load(path, mmap=True, weights_only=True)
    shapes = file["shapes"]
    return Known([_apart(flat, shapes) for flat in file["gradients"]], [_apart(f, shapes) for f in file["parameters"]])


def _flat(tensors: Iterable[Tensor]) -> Tensor:
    """One tensor: a file of many takes a rank longer to open than its steps take."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def _apart(flat: Tensor, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    pieces = torch.split(flat, [math.prod(shape) for shape in shapes.values()])
    return {name: piece.view(shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)}


def _adamw(case: Case, named: dict[str, torch.nn.Parameter]) -> torch.optim.Optimizer:
    optim = case.optim
    plain = [p for name, p in named.items() if p.ndim < 2 or "norm" in name.rsplit(".", 2)[-2]]
    matrices = [p for p in named.values() if all(p is not q for q in plain)]
    if case.optimizer == "sgd":
        groups = [{"params": matrices, "weight_decay": optim.weight_decay}, {"params": plain, "weight_decay": 0.0}]
        return torch.optim.SGD(groups, lr=case.lr, momentum=DEFAULTS["sgd"]["momentum"])
    groups = [{"params": matrices, "weight_decay": optim.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=case.lr, betas=DEFAULTS["adamw"]["betas"], eps=optim.eps or 1e-8)
