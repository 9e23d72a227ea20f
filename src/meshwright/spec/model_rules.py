"""What every Model must satisfy, whoever made it."""

from __future__ import annotations

from meshwright.spec.errors import ModelError
from meshwright.spec.model import Model

POSITIVE = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn_hidden", "vocab", "max_positions")


def checked(model: Model, where: str = "") -> Model:
    """The model itself, or ModelError with the first rule that it breaks; `where` names its origin in the message."""
    where = where or model.name
    for name in POSITIVE:
        if getattr(model, name) < 1:
            raise ModelError(f"{where}: {name} is {getattr(model, name)}, but must be at least 1.")
    if model.heads % model.kv_heads:
        raise ModelError(
            f"{where}: {model.kv_heads} key-value heads must divide {model.heads} heads.",
            legal=_near_divisors(model.heads, model.kv_heads),
        )
    _check_experts(model, where)
    return model


def _check_experts(model: Model, where: str) -> None:
    e = model.experts
    if e is None:
        return
    if e.per_token > e.count:
        raise ModelError(f"{where}: a token cannot visit {e.per_token} of {e.count} experts a layer.")
    if not model.moe_layers:
        raise ModelError(
            f"{where}: none of the {model.layers} layers is a mixture of experts (first {e.first_dense_layers} "
            f"dense, then every {e.layer_every}th, dense besides: {len(e.dense_layers)})."
        )


def _near_divisors(number: int, wanted: int) -> list[str]:
    """Up to five divisors of `number`, the nearest to `wanted` first."""
    small = [n for n in range(1, min(number, 10_000) + 1) if number % n == 0]
    return [str(n) for n in sorted(small, key=lambda n: abs(n - wanted))[:5]]
