"""FLOPs and bytes of blocks, against the papers' counts and hand calculations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meshwright.cost import operations as ops
from meshwright.cost.flops import model_flops, recomputed_flops
from meshwright.spec.columns import columns_of, stack
from meshwright.spec.layout import Layout
from meshwright.spec.model import Experts, Model
from meshwright.spec.model_config import load_model
from meshwright.spec.workload import Workload, make_workload

GPT3 = Model(
    "gpt3", 96, 12288, 96, 96, 128, 4 * 12288, 51_200, 2048, gated_mlp=False, norm="layernorm", positions="learned",
    position_rows=2048, tied_embeddings=True,
)  # fmt: skip
LLAMA_8B = Model("llama", 32, 4096, 32, 8, 128, 14336, 128_256, 8192)
BATCH, SEQUENCE = 2, 2048


def work(**options: bool) -> Workload:
    return make_workload(SEQUENCE, BATCH, **{"causal": False, **options})


def flops(operations: list[ops.Operation]) -> float:
    return float(sum(o.flops for o in operations))


def block(model: Model, workload: Workload, **layout: object) -> list[ops.Operation]:
    z = ops.sizes(workload, columns_of(Layout(micro_batch=BATCH, **layout)))  # type: ignore[arg-type]
    return ops.attention_block(model, workload, z) + ops.mlp_block(model, workload, z)


# arXiv:2104.04473 appendix: 24Bsh^2 + 4Bs^2h a layer in forward.
@pytest.mark.parametrize("fused", [True, False])
def test_a_layer_s_forward_is_24bsh2_plus_4bs2h(fused: bool) -> None:
    h = GPT3.hidden
    by_hand = 24 * BATCH * SEQUENCE * h**2 + 4 * BATCH * SEQUENCE**2 * h
    assert flops(block(GPT3, work(fused_attention=fused))) == pytest.approx(by_hand)


def test_a_fused_causal_kernel_does_half_of_the_attention() -> None:
    whole, causal = flops(block(GPT3, work())), flops(block(GPT3, work(causal=True)))
    assert whole - causal == pytest.approx(2 * BATCH * SEQUENCE**2 * GPT3.hidden)


def test_gated_layer_with_grouped_queries_by_hand() -> None:
    """Llama-3-8B: queries and output 2 x 4096^2, keys and values 2 x 4096 x 1024, three products of 14,336."""
    weights = 2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    by_hand = 2 * BATCH * SEQUENCE * weights + 4 * BATCH * SEQUENCE**2 * 4096
    assert flops(block(LLAMA_8B, work())) == pytest.approx(by_hand)


@pytest.mark.parametrize("tensor", [2, 4, 8])
def test_tensor_ranks_share_the_flops(tensor: int) -> None:
    assert flops(block(LLAMA_8B, work(), tensor=tensor)) * tensor == pytest.approx(flops(block(LLAMA_8B, work())))


def test_context_ranks_share_the_flops() -> None:
    assert flops(block(LLAMA_8B, work(), context=4)) * 4 == pytest.approx(flops(block(LLAMA_8B, work())))


def test_a_window_of_1024_of_4096_tokens_sees_896_keys_on_average() -> None:
    """Sum over positions of min(i, 1024), over 4096: 1024 - 1024^2 / (2 x 4096) = 896."""
    model = replace(LLAMA_8B, attention_window=1024, window_every=1)
    assert ops.visible_keys(model, make_workload(4096, 1)) == 896
    assert ops.visible_keys(LLAMA_8B, make_workload(4096, 1)) == 2048


def test_one_full_layer_in_two_sees_the_mean_of_both() -> None:
    model = replace(LLAMA_8B, attention_window=1024, window_every=2)
    assert ops.visible_keys(model, make_workload(4096, 1)) == (896 + 2048) / 2


def test_a_token_visits_its_experts_and_no_others() -> None:
    """Mixtral's layer: attention of a 7B and two of eight experts of three 4096 x 14,336 products, and the router."""
    model = Model("m", 32, 4096, 32, 8, 128, 14336, 32000, 32768, experts=Experts(8, 2, 14336))
    columns = columns_of(Layout(micro_batch=BATCH))
    z = ops.sizes(work(), columns)
    by_hand = 2 * BATCH * SEQUENCE * (2 * 3 * 4096 * 14336 + 4096 * 8)
    assert flops(ops.moe_block(model, work(), columns, z)) == pytest.approx(by_hand)


@pytest.mark.parametrize("expert", [2, 4, 8])
def test_spreading_experts_keeps_each_device_s_work(expert: int) -> None:
    """Eight data ranks route as many tokens to each device's experts as it routes away."""
    model = Model("m", 32, 4096, 32, 8, 128, 14336, 32000, 32768, experts=Experts(8, 2, 14336))
    spread, whole = columns_of(Layout(replicate=8, expert=expert)), columns_of(Layout(replicate=8))
    z = ops.sizes(work(), whole)
    assert flops(ops.moe_block(model, work(), spread, z)) == pytest.approx(
        flops(ops.moe_block(model, work(), whole, z))
    )


def test_the_head_multiplies_every_token_with_the_vocabulary() -> None:
    z = ops.sizes(work(), columns_of(Layout(micro_batch=BATCH)))
    assert flops(ops.head_block(GPT3, work(), z)) == 2 * BATCH * SEQUENCE * 12288 * 51_200


def test_the_vocabulary_is_padded_for_every_tensor_rank() -> None:
    """GPT-2's 50,257 rows on 8 ranks become 51,200 (Megatron-LM's make-vocab-size-divisible-by 128)."""
    model = replace(GPT3, vocab=50_257)
    z = ops.sizes(work(), columns_of(Layout(micro_batch=BATCH, tensor=8)))
    assert flops(ops.head_block(model, work(), z)) * 8 == 2 * BATCH * SEQUENCE * 12288 * 51_200


# arXiv:2205.05198 appendix A: 72BLsh^2 (1 + s/6h + v/12hL).
def test_model_flops_are_the_paper_s() -> None:
    layers, h = GPT3.layers, GPT3.hidden
    by_hand = 72 * BATCH * layers * SEQUENCE * h**2 * (1 + SEQUENCE / (6 * h) + 51_200 / (12 * h * layers))
    assert model_flops(GPT3, work()) == pytest.approx(by_hand, rel=1e-3)  # biases and norms aside


def test_full_recomputation_runs_every_layer_s_forward_again() -> None:
    again = recomputed_flops(GPT3, work(), Layout(recompute="full"))
    layer = 24 * SEQUENCE * GPT3.hidden**2 + 4 * SEQUENCE**2 * GPT3.hidden
    assert again == pytest.approx(BATCH * GPT3.layers * layer)


def test_selective_recomputation_of_unfused_attention_runs_4bs2h_again() -> None:
    again = recomputed_flops(GPT3, work(fused_attention=False), Layout(recompute="selective"))
    assert again == pytest.approx(BATCH * GPT3.layers * 4 * SEQUENCE**2 * GPT3.hidden)


def test_palm_s_example_counts_attention_in_full() -> None:
    """6N + 12LHQT a token (arXiv:2204.02311 appendix B), causal or not."""
    assert model_flops(GPT3, work(causal=True)) == model_flops(GPT3, work(causal=False))


@pytest.mark.parametrize("name", ["llama-3-8b", "mixtral-8x7b", "deepseek-v3", "gpt2", "gemma-2-9b"])
def test_columns_and_single_layouts_agree(name: str) -> None:
    model = load_model(name)
    layouts = [Layout(micro_batch=b, tensor=t, sequence_parallel=on) for b, t, on in ((1, 1, True), (3, 4, False))]
    together = ops.attention_block(model, work(), ops.sizes(work(), stack(layouts)))
    for index, layout in enumerate(layouts):
        alone = ops.attention_block(model, work(), ops.sizes(work(), columns_of(layout)))
        for many, one in zip(together, alone, strict=True):
            for field in ("flops", "bytes", "saved"):
                value = np.broadcast_to(getattr(many, field), 2)[index]
                assert value == pytest.approx(float(getattr(one, field))), (many.name, field)
