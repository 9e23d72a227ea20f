"""Cross-entropy over logits that no rank holds whole is PyTorch's over whole ones, in value and gradient."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

from meshwright.modes.vocabulary import IGNORED, cross_entropy_sum
from meshwright.train.launch.pool import RankPool

TOKENS = 11


def whole_logits(vocabulary: int, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of very different sizes, and targets: ignored ones, the first and the last row among them."""
    generator = torch.Generator().manual_seed(vocabulary)
    logits = torch.randn(TOKENS, vocabulary, generator=generator, dtype=torch.float64) * 5
    logits[3] += 300.0  # exp overflows in fp32 unless the largest is taken off
    logits[4] -= 300.0
    targets = torch.randint(0, vocabulary, (TOKENS,), generator=generator)
    targets[0], targets[1] = 0, vocabulary - 1
    targets[5] = targets[7] = IGNORED
    return logits.to(dtype), targets


def share(vocabulary: int, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss on this rank's rows, and its gradient, with whatever numbers in the padding."""
    logits, targets = whole_logits(vocabulary, dtype)
    ranks, rank = dist.get_world_size(), dist.get_rank()
    rows = -(-vocabulary // ranks)
    own = torch.full((TOKENS, rows), 1e4, dtype=dtype)
    kept = logits[:, rank * rows : (rank + 1) * rows]
    own[:, : kept.shape[1]] = kept
    own.requires_grad_()
    loss = cross_entropy_sum(own, targets, dist.group.WORLD, vocabulary)
    (loss / 3).backward()
    assert own.grad is not None
    return loss.detach(), own.grad


@pytest.mark.parametrize(("vocabulary", "world"), [(64, 2), (257, 2), (257, 4), (6, 4), (5, 4), (3, 4)])
def test_it_is_pytorch_s_cross_entropy(ranks: RankPool, vocabulary: int, world: int) -> None:
    """5 over 4 ranks is 2, 2, 1 and a rank of padding alone; 3 over 4 as well."""
    logits, targets = whole_logits(vocabulary)
    logits.requires_grad_()
    expected = F.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum")
    (expected / 3).backward()
    found = ranks.run(share, vocabulary, world=world)
    for loss, _ in found:
        assert torch.allclose(loss, expected, rtol=1e-13)
    gradients = torch.cat([gradient for _, gradient in found], 1)
    assert torch.allclose(gradients[:, :vocabulary], logits.grad, rtol=1e-12, atol=1e-16)
    assert not gradients[:, vocabulary:].any()  # padding learns nothing


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_narrow_logits_are_summed_in_float32(ranks: RankPool, dtype: torch.dtype) -> None:
    logits, targets = whole_logits(257, dtype)
    expected = F.cross_entropy(logits.float(), targets, ignore_index=IGNORED, reduction="sum")
    for loss, gradient in ranks.run(share, 257, dtype, world=2):
        assert loss.dtype == torch.float32
        assert torch.allclose(loss, expected, rtol=1e-6)
        assert gradient.dtype == dtype


def nothing_counts() -> tuple[float, float]:
    own = torch.randn(4, 3, requires_grad=True)
    loss = cross_entropy_sum(own, torch.full((4,), IGNORED), dist.group.WORLD, 6)
    loss.backward()
    assert own.grad is not None
    return float(loss), float(own.grad.abs().max())


def test_ignored_targets_alone_are_a_loss_of_zero(ranks: RankPool) -> None:
    assert ranks.run(nothing_counts, world=2) == [(0.0, 0.0)] * 2


def test_one_rank_needs_no_group() -> None:
    logits, targets = whole_logits(9)
    expected = F.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum")
    assert torch.equal(cross_entropy_sum(logits, targets), expected)
