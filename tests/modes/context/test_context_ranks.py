"""Ring, all-gather and Ulysses attention on real ranks against one process in float64."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from meshwright.modes.context import context_kernel, take
from meshwright.spec.layout import CONTEXT_KINDS, Layout
from meshwright.train.launch.pool import RankPool

DIM = 24


@dataclass(frozen=True)
class Case:
    """One attention."""

    seq: int
    batch: int = 1
    heads: int = 8
    kv_heads: int = 2
    causal: bool = True
    window: int = 0
    documents: bool = False
    dtype: torch.dtype = torch.float64


def cases(world: int) -> Iterator[Case]:
    """GQA, documents, windows, causal or not, chunks at both ends or none."""
    for each, causal, kv_heads in itertools.product((12, 7), (True, False), (8, 2, 1)):
        yield Case(each * world, batch=1, causal=causal, kv_heads=kv_heads)
    rules = ((0, True), (5, True), (1, False), (5, False), (17, False))
    for each, causal, (window, documents) in itertools.product((12, 7), (True, False), rules):
        yield Case(each * world, batch=3, causal=causal, window=window, documents=documents)


def inputs(case: Case) -> tuple[list[Tensor], Tensor | None, Tensor]:
    """q, k, v, gradient of the output; documents; positions: the same on all ranks."""
    torch.manual_seed(case.seq)
    q, grad = (torch.randn(case.batch, case.heads, case.seq, DIM, dtype=torch.float64) for _ in range(2))
    k, v = (torch.randn(case.batch, case.kv_heads, case.seq, DIM, dtype=torch.float64) for _ in range(2))
    positions = torch.arange(case.seq).repeat(case.batch, 1)
    documents = None
    if case.documents:  # runs of uneven length that differ by sequence
        documents = (torch.rand(case.batch, case.seq) < 0.2).cumsum(1)
    return [q, k, v, grad], documents, positions


def truth(case: Case, tensors: list[Tensor], documents: Tensor | None) -> list[Tensor]:
    """out, dq, dk, dv by PyTorch's own attention under a mask written out."""
    *leaves, grad = (x.clone().requires_grad_() for x in tensors)
    at = torch.arange(case.seq)
    distance = at[:, None] - at[None, :]
    mask = torch.ones(case.batch, 1, case.seq, case.seq, dtype=torch.bool)
    if case.causal:
        mask &= distance >= 0
    if case.window:
        mask &= distance.abs() < case.window
    if documents is not None:
        mask &= (documents[:, :, None] == documents[:, None, :]).unsqueeze(1)
    out = scaled_dot_product_attention(*leaves, attn_mask=mask, enable_gqa=True)
    return [out.detach(), *torch.autograd.grad(out, leaves, grad)]


def part(x: Tensor, kind: str) -> Tensor:
    """This rank's tokens of [batch, heads, seq, dim]."""
    layout = Layout(context=dist.get_world_size(), context_kind=kind)
    return take(x.transpose(1, 2), layout, dist.get_rank()).transpose(1, 2)


def errors(kind: str, wanted: list[Case]) -> list[tuple[Case, list[float]]]:
    """Largest error of this rank's part of out, dq, dk and dv."""
    assert dist.group.WORLD is not None
    kernel = context_kernel(kind, dist.group.WORLD)
    layout = Layout(context=dist.get_world_size(), context_kind=kind)
    found = []
    for case in wanted:
        tensors, documents, positions = inputs(case)
        right = [part(x, kind) for x in truth(case, tensors, documents)]
        *leaves, grad = (part(x, kind).to(case.dtype) for x in tensors)
        leaves = [x.detach().requires_grad_() for x in leaves]
        own = None if documents is None else take(documents, layout, dist.get_rank())
        out = kernel(
            *leaves, causal=case.causal, window=case.window, documents=own,
            positions=take(positions, layout, dist.get_rank()),
        )  # fmt: skip
        assert out.dtype == case.dtype
        results = [out, *torch.autograd.grad(out, leaves, grad)]
        found.append((case, [float((a - b).abs().max()) for a, b in zip(results, right, strict=True)]))
    return found


def worst(found: list[list[tuple[Case, list[float]]]]) -> tuple[float, Case]:
    # A NaN compares with nothing, so it counts as infinite.
    return max(
        ((x if x == x else float("inf"), case) for rank in found for case, errors in rank for x in errors),
        key=lambda pair: pair[0],
    )


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("kind", CONTEXT_KINDS)
def test_ranks_compute_what_one_process_computes(ranks: RankPool, kind: str, world: int) -> None:
    error, case = worst(ranks.run(errors, kind, list(cases(world)), world=world))
    assert error < 1e-12, case


@pytest.mark.parametrize("kind", CONTEXT_KINDS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.06)])
def test_short_dtypes_agree_to_their_digits(ranks: RankPool, kind: str, dtype: torch.dtype, tolerance: float) -> None:
    wanted = [
        replace(Case(48, dtype=dtype), causal=causal, documents=documents)
        for causal, documents in itertools.product((True, False), (True, False))
    ]
    error, case = worst(ranks.run(errors, kind, wanted, world=4))
    assert error < tolerance, case
