"""Shapes: what is measured of a device.

Products, attention and element-wise kernels by themselves, from tiny to large; then what a training step is made of:
whole layers, embedding and head, and the optimizer, as our own models compute them. The former tell the constants
apart, the latter hold them to what matters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PRODUCT, ATTEND, MOVE, LAYER, HEAD, UPDATE = "product", "attention", "element-wise", "layer", "head", "optimizer"
KINDS = (PRODUCT, ATTEND, MOVE, LAYER, HEAD, UPDATE)
FORWARD, INPUT, WEIGHT, BOTH = "forward", "input gradient", "weight gradient", "forward and backward"


@dataclass(frozen=True, slots=True)
class Shape:
    """One thing to measure."""

    kind: str
    sizes: tuple[int, ...]
    """product: tokens, inner, outer. attention: sequences, heads, tokens, head dim. element-wise: elements. layer and
    head: sequences, tokens. optimizer: parameters."""
    part: str = BOTH
    model: str = ""
    """layer and head: a key of MODELS."""

    @property
    def name(self) -> str:
        """What a person reads."""
        sizes = "×".join(map(str, self.sizes))
        return " ".join(
            word for word in (self.kind, self.model, sizes, self.part if self.kind != UPDATE else "") if word
        )


def _llama(hidden: int, heads: int, ffn: int, vocab: int) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "hidden_size": hidden,
        "num_hidden_layers": 1,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "intermediate_size": ffn,
        "vocab_size": vocab,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
    }


MODELS: Mapping[str, dict[str, Any]] = {
    "h64": _llama(64, 4, 192, 512),
    "h128": _llama(128, 4, 384, 1024),
    "h256": _llama(256, 8, 768, 2048),
    "h512": _llama(512, 8, 1536, 4096),
    "h1024": _llama(1024, 16, 2816, 16384),
    "h2048": _llama(2048, 16, 5632, 32768),
    "h4096": _llama(4096, 32, 11008, 32768),
}
"""Models of one layer, by width."""


def shapes_for(device: str) -> list[Shape]:
    """What is measured on a `cpu` or a `cuda` device."""
    gpu = device == "cuda"
    products = _GPU_PRODUCTS if gpu else _CPU_PRODUCTS
    found = [Shape(PRODUCT, sizes, part) for sizes in products for part in (FORWARD, INPUT, WEIGHT)]
    found += [Shape(ATTEND, sizes) for sizes in (_GPU_ATTENTION if gpu else _CPU_ATTENTION)]
    found += [Shape(MOVE, (2**power,)) for power in ((20, 24, 27) if gpu else (14, 17, 20, 23))]
    layers = _GPU_LAYERS if gpu else _CPU_LAYERS
    found += [Shape(LAYER, sizes, part, model) for model, sizes in layers for part in (FORWARD, BOTH)]
    found += [Shape(HEAD, sizes, BOTH, model) for model, sizes in layers[1::2]]
    return [*found, *(Shape(UPDATE, (2**power,)) for power in ((24, 28) if gpu else (18, 22)))]


_CPU_PRODUCTS = (
    (32, 64, 64), (128, 64, 192), (128, 256, 256), (512, 128, 128), (512, 256, 768), (512, 64, 256), (256, 512, 1536),
    (1024, 256, 2048), (512, 1024, 1024), (1024, 1024, 2816),
)  # fmt: skip
_GPU_PRODUCTS = (
    (512, 512, 512), (2048, 1024, 1024), (2048, 1024, 4096), (4096, 2048, 2048), (4096, 512, 4096), (8192, 4096, 4096),
    (8192, 4096, 11008), (8192, 8192, 8192), (4096, 4096, 32768),
)  # fmt: skip
_CPU_ATTENTION = ((1, 4, 64, 16), (4, 4, 128, 32), (1, 16, 256, 16), (2, 8, 512, 64))
_GPU_ATTENTION = ((1, 16, 1024, 64), (4, 16, 2048, 64), (1, 32, 4096, 128), (2, 32, 8192, 128))
_CPU_LAYERS = (
    ("h64", (1, 32)), ("h64", (4, 128)), ("h128", (2, 128)), ("h128", (8, 128)), ("h256", (1, 128)), ("h256", (4, 128)),
    ("h256", (2, 512)), ("h512", (1, 128)), ("h512", (2, 256)), ("h1024", (1, 128)),
)  # fmt: skip
_GPU_LAYERS = (
    ("h256", (4, 128)), ("h1024", (1, 1024)), ("h1024", (4, 2048)), ("h2048", (2, 2048)), ("h4096", (1, 2048)),
    ("h4096", (2, 4096)),
)  # fmt: skip
