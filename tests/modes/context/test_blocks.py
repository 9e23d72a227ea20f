"""Attention in parts: each kernel against PyTorch's attention, and parts against the whole."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from meshwright.modes.context.blocks import attend, attend_backward, choose_kernel
from meshwright.modes.context.kernels import BlockKernel, CpuFlash, CudaEfficient, CudaFlash
from meshwright.modes.context.math_kernel import MathKernel
from meshwright.modes.context.merge import Merge

KERNELS = [CpuFlash, MathKernel]


def tensors(heads: int, kv_heads: int, queries: int, keys: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """q, k, v and a gradient of the output."""
    torch.manual_seed(0)
    shapes = [(3, heads, queries, 24), (3, kv_heads, keys, 24), (3, kv_heads, keys, 24), (3, heads, queries, 24)]
    return [torch.randn(shape, dtype=dtype) for shape in shapes]


def truth(q: Tensor, k: Tensor, v: Tensor, grad: Tensor, **options: object) -> list[Tensor]:
    """out, dq, dk, dv from PyTorch, in float64."""
    leaves = [x.double().requires_grad_() for x in (q, k, v)]
    out = scaled_dot_product_attention(*leaves, enable_gqa=True, **options)  # type: ignore[arg-type]
    return [out.detach(), *torch.autograd.grad(out, leaves, grad.double())]


def worst(found: list[Tensor], right: list[Tensor]) -> float:
    return max(float((f - r).abs().max()) for f, r in zip(found, right, strict=True))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kv_heads", [8, 2, 1])
@pytest.mark.parametrize("case", ["full", "causal", "mask", "mask per sequence"])
def test_each_kernel_computes_attention_and_its_gradients(kernel: type[BlockKernel], kv_heads: int, case: str) -> None:
    q, k, v, grad = tensors(8, kv_heads, 10, 10 if case == "causal" else 14)
    mask = None
    if case.startswith("mask"):
        mask = torch.rand(3 if "per" in case else 1, 1, 10, 14) > 0.5
        mask[..., 0] = True
    causal = case == "causal"
    out, lse = attend(q, k, v, causal=causal, mask=mask, kernel=kernel)
    found = attend_backward(grad, q, k, v, out, lse, causal=causal, mask=mask, kernel=kernel)
    assert worst([out, *found], truth(q, k, v, grad, attn_mask=mask, is_causal=causal)) < 1e-13


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("causal", [True, False])
def test_values_may_be_narrower_and_scores_have_another_scale(kernel: type[BlockKernel], causal: bool) -> None:
    q, k, v, grad = tensors(4, 2, 9, 9)
    v, grad = v[..., :16], grad[..., :16]
    out, lse = attend(q, k, v, causal=causal, scale=0.3, kernel=kernel)
    found = attend_backward(grad, q, k, v, out, lse, causal=causal, scale=0.3, kernel=kernel)
    assert worst([out, *found], truth(q, k, v, grad, is_causal=causal, scale=0.3)) < 1e-13


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.06), (torch.float16, 0.01)])
def test_short_dtypes_agree_to_their_digits(kernel: type[BlockKernel], dtype: torch.dtype, tolerance: float) -> None:
    q, k, v, grad = tensors(4, 2, 33, 33, dtype)
    out, lse = attend(q, k, v, causal=True, kernel=kernel)
    found = attend_backward(grad, q, k, v, out, lse, causal=True, kernel=kernel)
    assert out.dtype == dtype
    assert lse.dtype == torch.float32
    assert {x.dtype for x in found} == {dtype}
    assert worst([out, *found], truth(q, k, v, grad, is_causal=True)) < tolerance


@pytest.mark.parametrize("kernel", KERNELS)
def test_lse_is_the_log_of_the_sum_of_exponentials(kernel: type[BlockKernel]) -> None:
    q, k, v, _ = tensors(2, 2, 5, 7)
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k) * 0.3
    _, lse = attend(q, k, v, causal=False, scale=0.3, kernel=kernel)
    assert torch.allclose(lse, scores.exp().sum(-1).log(), rtol=1e-13)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_query_that_sees_no_key_gives_zero_and_no_gradient(kernel: type[BlockKernel]) -> None:
    q, k, v, grad = tensors(4, 2, 6, 6)
    mask = torch.ones(1, 1, 6, 6, dtype=torch.bool)
    mask[:, :, 2] = False
    out, lse = attend(q, k, v, causal=False, mask=mask, kernel=kernel)
    assert torch.all(out[:, :, 2] == 0)
    assert torch.all(lse[:, :, 2] == float("-inf"))
    dq, dk, dv = attend_backward(grad, q, k, v, out, lse, causal=False, mask=mask, kernel=kernel)
    assert torch.all(dq[:, :, 2] == 0)
    rest = [0, 1, 3, 4, 5]
    right = truth(q[:, :, rest], k, v, grad[:, :, rest])
    assert worst([out[:, :, rest], dq[:, :, rest], dk, dv], right) < 1e-13


def test_parts_over_different_keys_add_up_to_the_whole() -> None:
    q, k, v, grad = tensors(8, 2, 9, 12)
    mask = torch.rand(3, 1, 9, 12) > 0.6
    mask[:, :, 3] = False  # sees nothing at all
    mask[:, :, 4, :5] = False  # sees nothing in the first part
    merge = Merge(q, v.shape[-1])
    for first, end in ((0, 5), (5, 6), (6, 12)):
        part = mask[..., first:end]
        merge.add(0, 9, *attend(q, k[:, :, first:end], v[:, :, first:end], causal=False, mask=part))
    out, lse = merge.result()
    whole, whole_lse = attend(q, k, v, causal=False, mask=mask, kernel=MathKernel)
    assert torch.allclose(out, whole, atol=1e-14)
    assert torch.allclose(lse, whole_lse, atol=1e-14)
    right = attend_backward(grad, q, k, v, whole, whole_lse, causal=False, mask=mask, kernel=MathKernel)
    sums = [torch.zeros_like(x) for x in (q, k, v)]
    for first, end in ((0, 5), (5, 12)):
        keys = slice(first, end)
        found = attend_backward(
            grad, q, k[:, :, keys], v[:, :, keys], out, lse, causal=False, mask=mask[..., first:end]
        )
        sums[0] += found[0]
        sums[1][:, :, keys] += found[1]
        sums[2][:, :, keys] += found[2]
    assert worst(sums, list(right)) < 1e-13


def test_some_rows_may_be_added_before_all() -> None:
    q, k, v, _ = tensors(2, 1, 8, 8)
    merge = Merge(q, v.shape[-1])
    merge.add(4, 8, *attend(q[:, :, 4:], k[:, :, :4], v[:, :, :4], causal=False))
    merge.add(4, 8, *attend(q[:, :, 4:], k[:, :, 4:], v[:, :, 4:], causal=True))
    merge.add(0, 4, *attend(q[:, :, :4], k[:, :, :4], v[:, :, :4], causal=True))
    assert torch.allclose(merge.result()[0], scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True))


def test_the_kernel_is_chosen_by_device_dtype_and_mask() -> None:
    mask = torch.ones(1, 1, 2, 2, dtype=torch.bool)
    with torch._subclasses.fake_tensor.FakeTensorMode(allow_non_fake_inputs=True):
        cpu = torch.empty(1, 2, 2, 64)
        short = torch.empty(1, 2, 2, 64, device="cuda", dtype=torch.bfloat16)
        narrow = torch.empty(1, 2, 2, 32, device="cuda", dtype=torch.bfloat16)
        wide = torch.empty(1, 2, 2, 512, device="cuda", dtype=torch.bfloat16)
        assert choose_kernel(cpu, cpu, mask) is CpuFlash
        assert choose_kernel(short, short, None) is CudaFlash
        assert choose_kernel(short, short, mask) is CudaEfficient
        assert choose_kernel(wide, wide, None) is CudaEfficient
        assert choose_kernel(short, narrow, None) is CudaEfficient
        assert choose_kernel(short.float(), short.float(), None) is CudaEfficient
        assert choose_kernel(short.double(), short.double(), None) is MathKernel


@pytest.mark.parametrize("dim", [24, 20])
@pytest.mark.parametrize(
    ("kernel", "case"),
    [(kernel, case) for kernel in (CudaFlash, CudaEfficient) for case in ("full", "causal")]
    + [(CudaEfficient, "mask")],
)
def test_calls_of_the_cuda_kernels_fit_their_operators(kernel: type[BlockKernel], dim: int, case: str) -> None:
    """Shapes and signatures only, on the meta device: no GPU is asked."""
    q = torch.empty(2, 8, 10, dim, device="meta", dtype=torch.bfloat16)
    k = torch.empty(2, 2, 10, dim, device="meta", dtype=torch.bfloat16)
    mask = torch.ones(2, 1, 10, 10, dtype=torch.bool, device="meta") if case == "mask" else None
    out, lse = attend(q, k, k, causal=case == "causal", mask=mask, kernel=kernel)
    assert (out.shape, out.dtype) == (q.shape, torch.bfloat16)
    assert (tuple(lse.shape), lse.dtype) == ((2, 8, 10), torch.float32)
    found = attend_backward(q, q, k, k, out, lse, causal=case == "causal", mask=mask, kernel=kernel)
    assert [x.shape for x in found] == [q.shape, k.shape, k.shape]
    assert {x.dtype for x in found} == {torch.bfloat16}


def test_causal_attention_pairs_queries_and_keys() -> None:
    q, k, v, _ = tensors(2, 2, 4, 6)
    with pytest.raises(ValueError, match="there are 4 and 6"):
        attend(q, k, v, causal=True)
