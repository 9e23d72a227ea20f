"""The right values: torch.optim on whole tensors, and LAMB written from the paper."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn

from meshwright.train.optim.config import OptimConfig
from tests.train.optim.cuts import STEPS, by_torch, decays, gradients, initial

CONFIGS = {
    "adamw": OptimConfig("adamw", lr=1e-2, betas=(0.8, 0.9), weight_decay=0.3),
    "sgd": OptimConfig("sgd", lr=1e-2, momentum=0.7, weight_decay=0.3),
    "nesterov": OptimConfig("sgd", lr=1e-2, momentum=0.7, nesterov=True, weight_decay=0.3),
    "adafactor": OptimConfig("adafactor", lr=0.4, weight_decay=0.3, clip_threshold=1.01),
    "lamb": OptimConfig("lamb", lr=1e-2, betas=(0.8, 0.9), weight_decay=0.3),
    "muon": OptimConfig("muon", lr=1e-2, betas=(0.8, 0.9), weight_decay=0.3, table_lr=2e-2),
}


@cache
def reference(name: str) -> dict[str, Tensor]:
    """The parameters that CONFIGS[name] leads to."""
    match name:
        case "adamw":
            return by_torch(lambda groups: torch.optim.AdamW(groups, lr=1e-2, betas=(0.8, 0.9), fused=False), 0.3)
        case "sgd" | "nesterov":
            nesterov = name == "nesterov"
            return by_torch(lambda groups: torch.optim.SGD(groups, lr=1e-2, momentum=0.7, nesterov=nesterov), 0.3)
        case "adafactor":
            return by_torch(lambda groups: torch.optim.Adafactor(groups, lr=0.4, d=1.01), 0.3)
        case "muon":
            return _muon()
    return {key: lamb(key, tensor) for key, tensor in initial().items()}


def lamb(name: str, x: Tensor, lr: float = 1e-2, decay: float = 0.3) -> Tensor:
    """Algorithm 2 of arXiv:1904.00962, φ the identity; without decay and rescaling for biases and norms."""
    x, m, v = x.clone(), torch.zeros_like(x), torch.zeros_like(x)
    for step in range(STEPS):
        g = gradients(step)[name]
        m = 0.8 * m + 0.2 * g
        v = 0.9 * v + 0.1 * g * g
        r = (m / (1 - 0.8 ** (step + 1))) / ((v / (1 - 0.9 ** (step + 1))).sqrt() + 1e-6)
        u = r + decay * x if decays(name) else r
        ratio = x.norm() / u.norm() if decays(name) else 1.0
        x = x - lr / (1 + step) * ratio * u
    return x


def _muon() -> dict[str, Tensor]:
    """torch.optim.Muon for the hidden matrices, each expert by itself; AdamW for the others."""
    whole = initial()
    hidden = {name: nn.Parameter(value) for name, value in whole.items() if "q.weight" in name or "mlp.up" in name}
    experts = [nn.Parameter(value) for value in whole["layers.0.mlp.moe.experts.up"].unbind()]
    muon = torch.optim.Muon([*hidden.values(), *experts], lr=1e-2, weight_decay=0.3, adjust_lr_fn="match_rms_adamw")
    for step in range(STEPS):
        given = gradients(step)
        for name, value in hidden.items():
            value.grad = given[name]
        for value, gradient in zip(experts, given["layers.0.mlp.moe.experts.up"].unbind(), strict=True):
            value.grad = gradient
        muon.param_groups[0]["lr"] = 1e-2 / (1 + step)
        muon.step()
    rest = by_torch(lambda groups: torch.optim.AdamW(groups, lr=2e-2, betas=(0.8, 0.9), fused=False), 0.3)
    trained = {name: value.detach() for name, value in hidden.items()}
    return {**rest, **trained, "layers.0.mlp.moe.experts.up": torch.stack([value.detach() for value in experts])}
