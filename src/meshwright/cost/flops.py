"""FLOPs of a step, as MFU and HFU count them."""

from __future__ import annotations

from dataclasses import replace

from meshwright.cost import operations as ops
from meshwright.cost.layer import layer_operations
from meshwright.cost.parameters import matmul_parameters
from meshwright.spec.columns import columns_of
from meshwright.spec.layout import Layout
from meshwright.spec.model import Model
from meshwright.spec.workload import Tuning, Workload

FORMULA = "6·N·tokens + 12·layers·heads·head_dim·sequence·tokens (PaLM, arXiv:2204.02311 appendix B)"


def model_flops(model: Model, workload: Workload) -> float:
    """FLOPs of one step without recomputation: 6 a matmul parameter and token, and attention in full (not halved).

    N counts the parameters that a token multiplies with: the head, not the embedding's look-up; of the experts those
    that it visits. A token meets the keys of its window where there is one. Of 6, 2 are forward's, 2 the gradient of
    the input and 2 that of the weight: frozen weights have no gradient, and frozen layers no backward.
    """
    head = float(_head_matrix(model))
    layers = matmul_parameters(model) - head
    forward = 2.0 * (layers + head) * workload.tokens + _attention_flops(model, workload)
    learned = learned_share(model, workload.tuning)
    to_input = 2.0 * (layers * learned + head) * workload.tokens
    to_weight = 0.0 if workload.tuning.kind == "lora" else to_input
    return forward + to_input + to_weight + 2.0 * learned * _attention_flops(model, workload)


def learned_share(model: Model, tuning: Tuning) -> float:
    """Share of the layers that have a backward."""
    return 1.0 - tuning.frozen / model.layers


def _head_matrix(model: Model) -> int:
    width = model.embedding_dim or model.hidden
    return model.vocab * width


def _attention_flops(model: Model, workload: Workload) -> float:
    """Forward FLOPs of scores and their product with the values, causal ones in full."""
    latent = model.latent
    both = latent.qk_nope_head_dim + latent.qk_rope_head_dim + latent.v_head_dim if latent else 2 * model.head_dim
    seq, window = workload.seq_len, model.attention_window
    windowed = (model.window_every - 1) / model.window_every if model.window_every > 1 else 1.0
    keys = windowed * min(seq, window) + (1 - windowed) * seq if window else seq
    return 2.0 * model.layers * model.heads * both * keys * workload.tokens


def recomputed_flops(model: Model, workload: Workload, layout: Layout) -> float:
    """Forward FLOPs that recomputation runs again in one step, all devices; attention in full, as in `model_flops`."""
    if layout.recompute == "none":
        return 0.0
    whole = columns_of(Layout(micro_batch=1))
    dense, moe = layer_operations(model, replace(workload, causal=False), whole)
    share = model.moe_layers / model.layers

    def again(operations: list[ops.Operation]) -> float:
        full = layout.recompute == "full"
        return float(sum(operation.flops for operation in operations if full or operation.replayed))

    layer = again(dense) if moe is None else (1 - share) * again(dense) + share * again(moe)
    return layer * model.layers * learned_share(model, workload.tuning) * workload.global_batch
