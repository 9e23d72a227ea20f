"""Work: the shapes as PyTorch runs them, on our own layers and head."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from meshwright.bench.compute import shapes as of
from meshwright.bench.compute.shapes import Shape
from meshwright.modes.vocabulary import cross_entropy_sum
from meshwright.train.models.decoder import Decoder
from meshwright.train.models.read_architecture import read_architecture

Run = Callable[[], object]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def work_of(shape: Shape, device: torch.device, dtype: torch.dtype) -> Run:
    """A function that does `shape` once; tensors are made now."""
    make = {
        of.PRODUCT: _product,
        of.ATTEND: _attention,
        of.MOVE: _move,
        of.LAYER: _layer,
        of.HEAD: _head,
        of.UPDATE: _update,
    }
    return make[shape.kind](shape, device, dtype)


def _product(shape: Shape, device: torch.device, dtype: torch.dtype) -> Run:
    m, k, n = shape.sizes
    x, weight = _numbers((m, k), device, dtype), _numbers((n, k), device, dtype)
    gradient = _numbers((m, n), device, dtype)
    if shape.part == of.INPUT:
        return lambda: gradient @ weight
    if shape.part == of.WEIGHT:
        return lambda: gradient.t() @ x
    return lambda: functional.linear(x, weight)


def _attention(shape: Shape, device: torch.device, dtype: torch.dtype) -> Run:
    batch, heads, seq, dim = shape.sizes
    q, k, v = (_numbers((batch, seq, heads, dim), device, dtype).transpose(1, 2).requires_grad_() for _ in range(3))
    gradient = _numbers((batch, heads, seq, dim), device, dtype)

    def run() -> None:
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        torch.autograd.grad(out, (q, k, v), gradient)

    return run


def _move(shape: Shape, device: torch.device, dtype: torch.dtype) -> Run:
    x, y, out = (_numbers(shape.sizes, device, dtype) for _ in range(3))
    return lambda: torch.add(x, y, out=out)


def _decoder(shape: Shape, device: torch.device, dtype: torch.dtype) -> Decoder:
    decoder = Decoder(read_architecture(of.MODELS[shape.model], shape.model), device, dtype)
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.normal_(0.0, 0.02)
    return decoder


def _layer(shape: Shape, device: torch.device, dtype: torch.dtype) -> Run:
    batch, seq = shape.sizes
    decoder = _decoder(shape, device, dtype)
    layer = decoder.layers["0"]
    x = _numbers((batch * seq, decoder.architecture.model.hidden), device, dtype).requires_grad_()
    gradient = torch.randn_like(x)
    context = decoder.context(torch.arange(seq, device=device).expand(batch, seq), None)
    inputs = [x, *layer.parameters()]

    def run() -> None:
        out = layer(x, context)
        if shape.part == of.BOTH:
            torch.autograd.grad(out, inputs, gradient)

    return run


def _head(shape: Shape, device: torch.device, dtype: torch.dtype) -> Run:
    batch, seq = shape.sizes
    decoder = _decoder(shape, device, dtype)
    vocab, hidden = decoder.architecture.model.vocab, decoder.architecture.model.hidden
    tokens = torch.randint(vocab, (batch, seq), device=device)
    positions = torch.arange(seq, device=device).expand(batch, seq)
    middle = _numbers((batch * seq, hidden), device, dtype).requires_grad_()
    table = list(decoder.embed.parameters())
    inputs = [middle, *decoder.norm.parameters(), *decoder.head.parameters()]

    def run() -> None:
        embedded = decoder.embed(tokens, positions)
        torch.autograd.grad(embedded, table, middle.detach())
        loss = cross_entropy_sum(decoder.head(decoder.norm(middle)), tokens.flatten())
        torch.autograd.grad(loss, inputs)

    return run


def _update(shape: Shape, device: torch.device, dtype: torch.dtype) -> Run:
    """A step as the optimizer of `train` does it: the gradient's norm, the clip, a fused AdamW, and zeros."""
    rows = max(shape.sizes[0] // 8, 1)
    tensors = [torch.nn.Parameter(_numbers((rows,), device, torch.float32)) for _ in range(8)]
    optimizer = torch.optim.AdamW(tensors, lr=1e-4, fused=True)
    gradients = [torch.randn_like(tensor) for tensor in tensors]

    def run() -> None:
        for tensor, gradient in zip(tensors, gradients, strict=True):
            tensor.grad = gradient
        torch.nn.utils.clip_grad_norm_(tensors, 1e9)
        optimizer.step()
        optimizer.zero_grad()

    return run


def _numbers(size: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    return torch.randn(size, device=device, dtype=dtype)
