"""What every Model must satisfy, whoever made it."""

from __future__ import annotations

from meshwright.spec.errors import ModelError
from meshwright.spec.model import Model


def checked(model: Model) -> Model:
    """The model itself, or ModelError with the first rule that it breaks."""
    if model.heads % model.kv_heads:
        raise ModelError(
            f"{model.name}: {model.kv_heads} key-value heads must divide {model.heads} heads.",
            legal=[str(n) for n in range(1, min(model.heads, 256) + 1) if model.heads % n == 0],
        )
    e = model.experts
    if e is not None and e.per_token > e.count:
        raise ModelError(f"{model.name}: a token cannot visit {e.per_token} of {e.count} experts.")
    return model
