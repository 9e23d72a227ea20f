"""What attention over context ranks sends: recorded on real ranks, against the formulas and by hand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import pytest
import torch

from meshwright.cost.wire.context import Attention, context_backward, context_forward
from meshwright.cost.wire.event import Event
from meshwright.modes.context import context_kernel
from meshwright.modes.mesh import make_mesh
from meshwright.modes.record import Recorder
from meshwright.spec.layout import CONTEXT_KINDS, Layout
from meshwright.train.launch.pool import RankPool

BATCH, HEADS, DIM = 2, 8, 16


def recorded(
    kind: str, ranks: int, each: int, kv_heads: int, dtype: torch.dtype, documents: bool
) -> list[list[tuple[str, int, int]]]:
    """(collective, count, bytes sent) of this rank in one forward and one backward pass."""
    mesh = make_mesh(Layout(context=ranks, context_kind=kind))
    kernel = context_kernel(kind, mesh.group("context"))
    q = torch.randn(BATCH, HEADS, each, DIM, dtype=dtype, requires_grad=True)
    k, v = (torch.randn(BATCH, kv_heads, each, DIM, dtype=dtype, requires_grad=True) for _ in range(2))
    numbers = torch.zeros(BATCH, each, dtype=torch.int64)
    with Recorder(mesh) as forward:
        out = kernel(q, k, v, causal=True, window=0, documents=numbers if documents else None, positions=numbers)
    with Recorder(mesh) as backward:
        out.sum().backward()
    return [totals(record) for record in (forward, backward)]


def totals(record: Recorder) -> list[tuple[str, int, int]]:
    assert all(entry.axis == "context" for entry in record.entries)
    return added((e.collective, 1, int(e.sent)) for e in record.entries if e.collective != "recv")


def formula(events: list[Event]) -> list[tuple[str, int, int]]:
    return added((e.collective, e.count, int(e.sent)) for e in events)


def added(found: Iterable[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """One row a collective."""
    sums: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for name, count, size in found:
        sums[name] = sums[name][0] + count, sums[name][1] + size
    return sorted((name, *rest) for name, rest in sums.items())


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("kind", CONTEXT_KINDS)
@pytest.mark.parametrize("documents", [False, True])
def test_ranks_send_what_the_formulas_say(ranks: RankPool, kind: str, world: int, documents: bool) -> None:
    for kv_heads, dtype in ((2, torch.float64), (1, torch.bfloat16), (8, torch.float32)):
        sizes = Attention(kind, world, BATCH * 6, HEADS, kv_heads, DIM, DIM, dtype.itemsize, documents)
        right = [formula(context_forward(sizes)), formula(context_backward(sizes))]
        for found in ranks.run(recorded, kind, world, 6, kv_heads, dtype, documents, world=world):
            assert found == right


def test_bytes_by_hand(ranks: RankPool) -> None:
    # 4 ranks, 2 x 6 tokens each, 8 heads, 2 key/value heads of 16, bfloat16. Keys and values: 2 x 12 x 2 x 16 = 768
    # numbers, 1,536 bytes, 3,072 in float32. Ulysses copies 2 heads to 4: 12 x 16 x (2 x 8 + 2 x 4) = 4,608 numbers
    # in all, 9,216 bytes, of which 3/4 leave.
    right = {
        "ring": [[("send", 3, 4608)], [("send", 6, 4608 + 9216)]],
        "allgather": [[("all-gather", 1, 4608)], [("all-gather", 1, 4608), ("reduce-scatter", 1, 9216)]],
        "ulysses": [[("all-to-all", 2, 6912)], [("all-to-all", 2, 6912)]],
    }
    for kind, sent in right.items():
        for found in ranks.run(recorded, kind, 4, 6, 2, torch.bfloat16, False, world=4):
            assert found == sent
