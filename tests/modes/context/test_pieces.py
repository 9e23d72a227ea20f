"""Who computes which scores: every visible entry once, and under a causal mask all ranks as many."""

from __future__ import annotations

import pytest
import torch

from meshwright.modes.context import indices
from meshwright.modes.context import pieces as module
from meshwright.modes.context.pieces import Runs, pieces
from meshwright.modes.context.split import runs
from meshwright.spec.layout import Layout


def places(held: Runs) -> list[int]:
    return [place for start, stop in held for place in range(start, stop)]


def computed(seq: int, ranks: int, rank: int, kind: str, **rule: bool | int) -> int:
    """Entries of the score matrix that a rank computes in one attention."""
    rows = runs(seq, ranks, rank, kind)
    sources = [((0, seq),)] if kind == "allgather" else [runs(seq, ranks, source, kind) for source in range(ranks)]
    return sum(piece.scores for keys in sources for piece in pieces(rows, keys, **rule))  # type: ignore[arg-type]


def test_the_scores_of_two_ranks_and_eight_tokens_by_hand() -> None:
    # Chunks of two tokens: rank 0 holds 0 1 6 7, rank 1 holds 2 3 4 5. Own tokens: 4 × 5 / 2 = 10 each.
    # Rank 0's tail (6 7) sees all four of rank 1: 8. Rank 1's four tokens see rank 0's head (0 1): 8. 36 in all.
    for kind in ("ring", "allgather"):
        assert [computed(8, 2, rank, kind, causal=True) for rank in range(2)] == [18, 18]


@pytest.mark.parametrize("kind", ["ring", "allgather"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_under_a_causal_mask_every_rank_computes_the_same_and_nothing_in_vain(kind: str, ranks: int) -> None:
    seq = 6 * ranks
    found = [computed(seq, ranks, rank, kind, causal=True) for rank in range(ranks)]
    assert len(set(found)) == 1
    assert sum(found) == seq * (seq + 1) // 2


def test_without_chunks_at_both_ends_the_last_rank_works_most() -> None:
    assert [computed(6, 2, rank, "ring", causal=True) for rank in range(2)] == [6, 6 + 9]


def test_a_window_leaves_out_the_keys_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MASKED_ROWS", 4)
    # 16 tokens, 4 rows a piece, window 3: rows a to a + 3 look at keys a - 2 to a + 3.
    assert computed(16, 1, 0, "ring", causal=True, window=3) == 4 * 4 + 3 * 4 * 6


@pytest.mark.parametrize("kind", ["ring", "allgather"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("each", [5, 6])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [0, 1, 4])
def test_pieces_cover_what_is_seen_exactly_once(
    kind: str, ranks: int, each: int, causal: bool, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MASKED_ROWS", 4)
    seq = ranks * each
    at = torch.arange(seq)
    distance = at[:, None] - at[None, :]
    seen = (distance >= 0) | torch.tensor(not causal)
    seen &= (distance.abs() < window) | torch.tensor(window == 0)
    for documents in (False, True):
        count = torch.zeros(seq, seq, dtype=torch.int64)
        for rank in range(ranks):
            rows = runs(seq, ranks, rank, kind)
            sources = [((0, seq),)] if kind == "allgather" else [runs(seq, ranks, r, kind) for r in range(ranks)]
            for keys in sources:
                for piece in pieces(rows, keys, causal=causal, window=window, documents=documents):
                    own = places(rows)[piece.row : piece.row_stop]
                    theirs = places(keys)[piece.key : piece.key_stop]
                    part = torch.ones(len(own), len(theirs), dtype=torch.int64)
                    if piece.kind == "causal":
                        part = part.tril()
                    if piece.kind == "masked":
                        assert own == list(range(piece.row_place, piece.row_place + len(own)))
                        assert theirs == list(range(piece.key_place, piece.key_place + len(theirs)))
                        part = seen[own][:, theirs].long()
                    count[torch.tensor(own)[:, None], torch.tensor(theirs)[None, :]] += part
        assert torch.equal(count, seen.long())


def test_indices_are_head_and_tail_chunks() -> None:
    assert indices(12, Layout(context=3), 0).tolist() == [0, 1, 10, 11]
    assert indices(12, Layout(context=3), 1).tolist() == [2, 3, 8, 9]
    assert indices(12, Layout(context=3), 2).tolist() == [4, 5, 6, 7]
