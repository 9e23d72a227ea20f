"""Reference: the same steps in one process, in plain PyTorch, with none of the modes' code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from meshwright.check.case import Case, global_batch
from meshwright.train.batch import IGNORED
from meshwright.train.models.build import build_model, load_architecture
from meshwright.train.models.init import init_module
from meshwright.train.models.moe import Moe
from meshwright.train.optim.config import DEFAULTS


def write_reference(case: Case, path: str) -> dict[str, Any]:
    """Run `case` in this process; gradients and parameters of each step go to `path`.

    Returns loss and gradient norm of each step, each parameter's shape, and sums of token losses and counts of targets
    by sequence of the first step. The file: {"gradients": [{name: tensor}], "parameters": [{name: tensor}, …]}, the
    parameters once before and once after each step. Gradients are those before the clip.
    """
    architecture = load_architecture(case.model)
    model = build_model(architecture, device="cpu", dtype=case.torch_dtype)
    init_module(model, case.seed)
    for module in model.modules():
        if isinstance(module, Moe):
            module.balance_scale = 1 / case.global_batch
    named = dict(model.named_parameters())
    optimizer = _adamw(case, named)
    gradients, parameters = [], [_copies(named)]
    losses, norms, sums, counts = [], [], [], []
    for step in range(case.steps):
        batch = global_batch(case, step, architecture.model.vocab)
        logits = model(batch.tokens, batch.positions)
        losses_of = F.cross_entropy(
            logits, batch.targets.flatten(), ignore_index=IGNORED, reduction="none"
        ).view_as(batch.targets)  # fmt: skip
        loss = losses_of.sum() / batch.target_tokens
        loss.backward()  # type: ignore[no-untyped-call]
        gradients.append({name: p.grad.clone() for name, p in named.items() if p.grad is not None})
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), case.max_norm)))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        parameters.append(_copies(named))
        if step == 0:
            sums, counts = losses_of.sum(1).tolist(), (batch.targets != IGNORED).sum(1).tolist()
    torch.save({"gradients": gradients, "parameters": parameters}, Path(path))
    shapes = {name: tuple(p.shape) for name, p in named.items()}
    return {"loss": losses, "grad_norm": norms, "shapes": shapes, "sums": sums, "counts": counts}


def _copies(named: dict[str, torch.nn.Parameter]) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in named.items()}


def _adamw(case: Case, named: dict[str, torch.nn.Parameter]) -> torch.optim.Optimizer:
    optim = case.optim
    plain = [p for name, p in named.items() if p.ndim < 2 or "norm" in name.rsplit(".", 2)[-2]]
    matrices = [p for p in named.values() if all(p is not q for q in plain)]
    if case.optimizer == "sgd":
        groups = [{"params": matrices, "weight_decay": optim.weight_decay}, {"params": plain, "weight_decay": 0.0}]
        return torch.optim.SGD(groups, lr=case.lr, momentum=DEFAULTS["sgd"]["momentum"])
    groups = [{"params": matrices, "weight_decay": optim.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=case.lr, betas=DEFAULTS["adamw"]["betas"], eps=optim.eps or 1e-8)
