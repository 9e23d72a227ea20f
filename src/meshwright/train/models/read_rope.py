"""Rotary frequencies as configurations describe them."""

from __future__ import annotations

from meshwright.spec.config_reader import ConfigReader, shorten
from meshwright.spec.errors import ModelError
from meshwright.train.models.positions import ROPE_KINDS, Rope, yarn_scale

LARGEST = 1e15


def read_rope(reader: ConfigReader, theta: float, max_positions: int, *, latent: bool = False) -> Rope:
    """From `rope_parameters` (transformers 5), else from `rope_theta` and `rope_scaling`.

    `theta` and `max_positions` stand for the base and the original context length where the configuration has none.
    `latent`: of latent attention, whose pairs are neighbours unless `rope_interleave` is false, and whose stretched
    scores `mscale_all_dim` scales.
    Raises ModelError for a kind that is not computed and for impossible numbers.
    """
    new = reader.find("rope_parameters")[1] is not None
    inner = reader.section("rope_parameters" if new else "rope_scaling")
    kind = inner.text("rope_type") or inner.text("type") or "default"
    if kind not in ROPE_KINDS:
        raise ModelError(f"{inner.where}: rope_type is {shorten(kind)}.", legal=ROPE_KINDS)
    for r in (reader, inner):
        for key in ("partial_rotary_factor", "rotary_pct", "rotary_percent"):
            if number(r, 1.0, key) != 1.0:
                raise r.error(key, r.config[key], "1")
    theta = number(inner, number(reader, theta, "rope_theta", "rotary_base"), "rope_theta")
    if theta <= 1:
        raise inner.error("rope_theta", theta, "above 1")
    neighbours = latent and reader.boolean("rope_interleave", True)
    if kind == "default":
        return Rope(theta, neighbours=neighbours)
    factor = number(inner, 0.0, "factor")
    if factor < 1:
        raise inner.error("factor", inner.config.get("factor"), "a number from 1")
    all_dim = number(inner, 0.0, "mscale_all_dim") if latent else 0.0
    if kind == "linear":
        return Rope(theta, kind, factor, mscale_all_dim=all_dim, neighbours=neighbours)
    original = reader.integer("original_max_position_embeddings", default=max_positions)
    original = inner.integer("original_max_position_embeddings", default=original)
    if kind == "llama3":
        low, high = number(inner, 1.0, "low_freq_factor"), number(inner, 4.0, "high_freq_factor")
        if not 0 < low < high:
            raise inner.error("high_freq_factor", high, f"above low_freq_factor, {low}")
        return Rope(theta, kind, factor, original, low, high, mscale_all_dim=all_dim, neighbours=neighbours)
    fast, slow = number(inner, 32.0, "beta_fast"), number(inner, 1.0, "beta_slow")
    if not 0 < slow <= fast:
        raise inner.error("beta_slow", slow, f"above 0 and at most beta_fast, {fast}")
    return Rope(
        theta,
        kind,
        factor,
        original,
        beta_fast=fast,
        beta_slow=slow,
        truncate=inner.boolean("truncate", True),
        attention_factor=_yarn_attention(inner, factor),
        mscale_all_dim=all_dim,
        neighbours=neighbours,
    )


def _yarn_attention(reader: ConfigReader, factor: float) -> float:
    """What cosine and sine are multiplied by (arXiv:2309.00071 equation 22, and DeepSeek's `mscale`)."""
    mscale, all_dim = number(reader, 0.0, "mscale"), number(reader, 0.0, "mscale_all_dim")
    both = mscale and all_dim
    inferred = yarn_scale(factor, mscale) / yarn_scale(factor, all_dim) if both else yarn_scale(factor, 1.0)
    return number(reader, inferred, "attention_factor")


def number(reader: ConfigReader, default: float, *keys: str) -> float:
    """A number from 0 to LARGEST. Raises ModelError."""
    key, value = reader.find(*keys)
    if value is None:
        return default
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    if not plain or not 0 <= value <= LARGEST:
        raise reader.error(key, value, f"a number from 0 to {LARGEST:g}")
    return float(value)
