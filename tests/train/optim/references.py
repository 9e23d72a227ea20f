"""The right values: torch.optim on whole tensors, and LAMB written from the paper."""

from __future__ import annotations

from collections.abc import Callable
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
    "lamb-clamped": OptimConfig("lamb", lr=1e-2, betas=(0.8, 0.9), weight_decay=0.3, trust_range=(2.5, 3.5)),
    "muon": OptimConfig("muon", lr=1e-2, betas=(0.8, 0.9), weight_decay=0.3, table_lr=2e-2),
    "muon-bfloat16": OptimConfig(
        "muon",
        lr=1e-2,
        betas=(0.8, 0.9),
        weight_decay=0.3,
        table_lr=2e-2,
        newton_schulz_dtype="bfloat16",
        adjustment="original",
        nesterov=False,
    ),
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
            return _muon(_by_svd)
        case "muon-bfloat16":
            return _muon(_by_torch)
    return {key: lamb(key, tensor, *(CONFIGS[name].trust_range or ())) for key, tensor in initial().items()}


def lamb(name: str, x: Tensor, low: float = 0.0, high: float = float("inf")) -> Tensor:
    """Algorithm 2 of arXiv:1904.00962; without decay and rescaling for biases and norms."""
    x, m, v = x.clone(), torch.zeros_like(x), torch.zeros_like(x)
    for step in range(STEPS):
        g = gradients(step)[name]
        m = 0.8 * m + 0.2 * g
        v = 0.9 * v + 0.1 * g * g
        r = (m / (1 - 0.8 ** (step + 1))) / ((v / (1 - 0.9 ** (step + 1))).sqrt() + 1e-6)
        u = r + 0.3 * x if decays(name) else r
        ratio = x.norm().clamp(low, high) / u.norm() if decays(name) else 1.0
        x = x - 1e-2 / (1 + step) * ratio * u
    return x


def _muon(train: Callable[[dict[str, Tensor], list[dict[str, Tensor]]], dict[str, Tensor]]) -> dict[str, Tensor]:
    """`train` for the hidden matrices, each expert by itself; AdamW for the others."""
    experts = "layers.0.mlp.moe.experts.up"

    def hidden(whole: dict[str, Tensor]) -> dict[str, Tensor]:
        matrices = {name: value for name, value in whole.items() if "q.weight" in name or "mlp.up" in name}
        return {**matrices, **{str(place): value for place, value in enumerate(whole[experts])}}

    trained = train(hidden(initial()), [hidden(gradients(step)) for step in range(STEPS)])
    stack = torch.stack([trained.pop(str(place)) for place in range(4)])
    rest = by_torch(lambda groups: torch.optim.AdamW(groups, lr=2e-2, betas=(0.8, 0.9), fused=False), 0.3)
    return {**rest, **trained, experts: stack}


def _by_torch(matrices: dict[str, Tensor], given: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """torch.optim.Muon."""
    parameters = {name: nn.Parameter(value) for name, value in matrices.items()}
    muon = torch.optim.Muon(parameters.values(), lr=1e-2, weight_decay=0.3, nesterov=False)
    for step in range(STEPS):
        for name, value in parameters.items():
            value.grad = given[step][name]
        muon.param_groups[0]["lr"] = 1e-2 / (1 + step)
        muon.step()
    return {name: value.detach() for name, value in parameters.items()}


def _by_svd(matrices: dict[str, Tensor], given: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Nesterov momentum whose singular values go five times through the quintic, with AdamW's root mean square."""
    trained = {}
    for name, value in matrices.items():
        x, momentum = value, torch.zeros_like(value)
        for step in range(STEPS):
            gradient, lr = given[step][name], 1e-2 / (1 + step)
            momentum = 0.95 * momentum + 0.05 * gradient
            u, s, vh = torch.linalg.svd(0.95 * momentum + 0.05 * gradient, full_matrices=False)
            s = s / s.norm()
            for _ in range(5):
                s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
            x = x * (1 - 0.3 * lr) - lr * 0.2 * max(x.shape) ** 0.5 * (u * s) @ vh
        trained[name] = x
    return trained
