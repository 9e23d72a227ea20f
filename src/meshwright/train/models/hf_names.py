"""How a Decoder's parameters are named and shaped in Hugging Face checkpoints.

A parameter of ours is made of pieces: each is a box of one tensor in the checkpoint, maybe transposed. The first form
listed is the one that is written (that of `transformers`' own checkpoints on the hub); the others are read too.
"""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.train.models.architecture import Architecture
from meshwright.train.models.decoder import weight_shapes

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """The box [start, start + length) along `dim` of one tensor, that holds our parameter or one expert of it."""

    tensor: str
    shape: Shape
    """Of the whole tensor in the checkpoint."""
    dim: int = 0
    start: int = 0
    length: int = 0
    transposed: bool = False
    """The checkpoint's matrix is [inputs, outputs] (GPT-2's Conv1D), ours [outputs, inputs]."""
    expert: int | None = None
    """Which matrix of our stacked parameter this is; None: all of it."""


Form = tuple[Piece, ...]


def forms(a: Architecture, name: str) -> tuple[Form, ...]:
    """The forms in which checkpoints hold our parameter (or buffer) `name`, the written one first.

    Raises KeyError for a name that the Decoder of this architecture does not have.
    """
    if name == "head.weight" and a.model.tied_embeddings:
        name = "embed.tokens.weight"
    shape = weight_shapes(a)[name]
    if a.model.family in ("gpt2", "megatron"):
        written = _gpt2(a, name, shape)
        # The first GPT-2 files on the hub have no prefix.
        bare = tuple(_renamed(piece, piece.tensor.removeprefix("transformer.")) for piece in written)
        return (written, bare) if bare != written else (written,)
    parts = name.split(".")
    if "experts" in parts:
        return _experts(a, int(parts[1]), parts[-1], shape)
    piece = _whole(_llama(a, parts), shape)
    if a.model.family == "mixtral" and "router" in parts:
        return (piece,), (_renamed(piece, piece.tensor.replace("block_sparse_moe", "mlp")),)
    return ((piece,),)


def _whole(tensor: str, shape: Shape, transposed: bool = False) -> Piece:
    shape = shape[::-1] if transposed else shape
    return Piece(tensor, shape, 0, 0, shape[0], transposed)


def _renamed(p: Piece, tensor: str) -> Piece:
    return Piece(tensor, p.shape, p.dim, p.start, p.length, p.transposed, p.expert)


_OUTSIDE = {"embed.tokens": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}
_INSIDE = {
    "attention_norm": "input_layernorm",
    "mlp_norm": "post_attention_layernorm",
    **{f"attention.{p}": f"self_attn.{p}_proj" for p in "qkvo"},
    **{f"attention.{p}": f"self_attn.{p}" for p in ("q_norm", "k_norm")},
    **{f"mlp.{p}": f"mlp.{p}_proj" for p in ("gate", "up", "down")},
    **{f"moe.shared.{p}": f"mlp.shared_expert.{p}_proj" for p in ("gate", "up", "down")},
    "moe.shared_gate": "mlp.shared_expert_gate",
    "moe.router": "mlp.gate",
}
_DEEPSEEK = {
    **{f"attention.{p}": f"self_attn.{p}_proj" for p in "qo"},
    "attention.q_down": "self_attn.q_a_proj",
    "attention.q_norm": "self_attn.q_a_layernorm",
    "attention.q_up": "self_attn.q_b_proj",
    "attention.kv_down": "self_attn.kv_a_proj_with_mqa",
    "attention.kv_norm": "self_attn.kv_a_layernorm",
    "attention.kv_up": "self_attn.kv_b_proj",
    **{f"moe.shared.{p}": f"mlp.shared_experts.{p}_proj" for p in ("gate", "up", "down")},
}
"""Where they differ from the names inside other layers."""


def _llama(a: Architecture, parts: list[str]) -> str:
    *path, last = parts
    if path[0] != "layers":
        return f"{_OUTSIDE['.'.join(path)]}.{last}"
    if last == "correction":
        return f"model.layers.{path[1]}.mlp.gate.e_score_correction_bias"
    names = {**_INSIDE, **_DEEPSEEK} if a.model.latent is not None else _INSIDE
    inside = names[".".join(path[2:])]
    if a.model.family == "mixtral" and inside == "mlp.gate":
        inside = "block_sparse_moe.gate"
    return f"model.layers.{path[1]}.{inside}.{last}"


def _experts(a: Architecture, layer: int, part: str, shape: Shape) -> tuple[Form, ...]:
    """One matrix an expert; or all stacked, gate above up, as `transformers` 5 holds them in memory."""
    count, rows, columns = shape
    prefix = f"model.layers.{layer}.mlp.experts"
    if a.model.family == "mixtral":
        prefix = f"model.layers.{layer}.block_sparse_moe.experts"
    leaf = {"gate": "w1", "up": "w3", "down": "w2"}[part] if a.model.family == "mixtral" else f"{part}_proj"
    single = tuple(Piece(f"{prefix}.{e}.{leaf}.weight", (rows, columns), 0, 0, rows, expert=e) for e in range(count))
    stacked = f"model.layers.{layer}.mlp.experts."
    if part == "down":
        return single, (Piece(stacked + "down_proj", shape, 0, 0, count),)
    start = rows if part == "up" else 0
    return single, (Piece(stacked + "gate_up_proj", (count, 2 * rows, columns), 1, start, rows),)


_GPT2 = {
    "embed.tokens": "transformer.wte",
    "embed.positions": "transformer.wpe",
    "norm": "transformer.ln_f",
    "head": "lm_head",
    "attention_norm": "ln_1",
    "mlp_norm": "ln_2",
    "attention.o": "attn.c_proj",
    "mlp.up": "mlp.c_fc",
    "mlp.down": "mlp.c_proj",
}


def _gpt2(a: Architecture, name: str, shape: Shape) -> Form:
    *path, last = name.split(".")
    if path[0] != "layers":
        return (_whole(f"{_GPT2['.'.join(path)]}.{last}", shape),)
    block, inside = f"transformer.h.{path[1]}", ".".join(path[2:])
    if inside in ("attention.q", "attention.k", "attention.v"):
        place, width = "qkv".index(inside[-1]), shape[0]
        fused = (shape[1], 3 * width) if last == "weight" else (3 * width,)
        dim = len(fused) - 1
        return (Piece(f"{block}.attn.c_attn.{last}", fused, dim, place * width, width, last == "weight"),)
    return (_whole(f"{block}.{_GPT2[inside]}.{last}", shape, last == "weight" and len(shape) == 2),)


def is_ignorable(a: Architecture, tensor: str) -> bool:
    """Whether a tensor in a checkpoint is no parameter: attention masks and rotary tables that old files keep, and the
    head of a model whose head is its embedding, and the modules that predict further tokens (DeepSeek-V3's layer
    behind the last)."""
    if tensor == "lm_head.weight":
        return a.model.tied_embeddings
    if a.model.latent is not None and tensor.startswith(f"model.layers.{a.model.layers}."):
        return True
    return tensor.endswith((".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"))
