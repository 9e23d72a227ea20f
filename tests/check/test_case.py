"""The work of `check`: uneven masks, micro-batches of every rank, layouts that the batch cannot be cut for."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from meshwright.check.case import Case, cut, global_batch, rows_of, with_micro_batches
from meshwright.check.legality import check_legal
from meshwright.check.reference import read_reference, write_reference
from meshwright.spec.errors import LayoutError
from meshwright.spec.notation import parse_layout
from meshwright.train.batch import IGNORED
from meshwright.train.config.models import model_to_train

CASE = Case("tiny-llama", seq_len=16, global_batch=16)


def test_no_two_neighbours_count_as_many_targets_and_one_counts_none() -> None:
    batch = global_batch(CASE, 0, 512)
    counts = (batch.targets != IGNORED).sum(1)
    assert (counts[1:] != counts[:-1]).all()
    assert counts[1] == 0
    assert batch.target_tokens == int(counts.sum())


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_count_different_numbers_of_targets(ranks: int) -> None:
    for step in range(3):
        counts = (global_batch(CASE, step, 512).targets != IGNORED).sum(1)
        assert len(set(counts.view(ranks, -1).sum(1).tolist())) > 1


def test_targets_are_the_next_tokens_and_steps_differ() -> None:
    first, second = global_batch(CASE, 0, 512), global_batch(CASE, 1, 512)
    shown = first.targets[:, :-1] != IGNORED
    assert torch.equal(first.targets[:, :-1][shown], first.tokens[:, 1:][shown])
    assert not torch.equal(first.tokens, second.tokens)
    assert torch.equal(first.tokens, global_batch(CASE, 0, 512).tokens)


def test_packed_sequences_hold_documents_that_begin_at_position_0() -> None:
    batch = global_batch(replace(CASE, packed=True), 0, 512)
    assert batch.documents is not None
    assert int(batch.documents.max()) > 1
    for documents, positions in zip(batch.documents, batch.positions, strict=True):
        for document in documents.unique():
            own = positions[documents == document]
            assert torch.equal(own, torch.arange(len(own)))


@pytest.mark.parametrize(
    ("layout", "accumulation", "sequences"),
    [
        ("ddp2", 1, 8),  # 16 / 2 in one micro-batch
        ("ddp2", 2, 4),
        ("pp4:1f1b", 1, 4),  # at least a micro-batch a stage
        ("pp4:1f1b", 2, 2),
        ("ddp2 pp2:dualpipev", 1, 2),  # twice the stages
        ("ddp2 pp2:dualpipev", 2, 1),
        ("tp4", 1, 16),
    ],
)
def test_a_micro_batch_is_as_large_as_the_accumulation_allows(layout: str, accumulation: int, sequences: int) -> None:
    found = with_micro_batches(parse_layout(layout), CASE, accumulation)
    assert found is not None
    assert found.micro_batch == sequences


def test_a_batch_that_cannot_be_cut_is_none() -> None:
    assert with_micro_batches(parse_layout("ddp3"), CASE, 1) is None
    assert with_micro_batches(parse_layout("ddp16"), CASE, 2) is None
    assert with_micro_batches(parse_layout("ddp4 pp4:dualpipev"), CASE, 1) is None
    with pytest.raises(LayoutError, match="cannot cut 16 sequences") as error:
        check_legal(CASE, model_to_train("tiny-llama"), parse_layout("ddp4 pp4:dualpipev"))
    assert error.value.legal == ("--global-batch 64",)
    larger = replace(CASE, global_batch=64)
    check_legal(larger, model_to_train("tiny-llama"), parse_layout("ddp4 pp4:dualpipev"))


@pytest.mark.parametrize("layout", ["ddp4 mbs2", "fsdp2 mbs1", "hsdp2x2 mbs4", "tp2 mbs16"])
def test_every_sequence_is_in_one_micro_batch_of_one_data_rank(layout: str) -> None:
    parsed = parse_layout(layout)
    batch = global_batch(CASE, 0, 512)
    own = [cut(batch, rows).tokens for rank in range(parsed.data) for rows in rows_of(parsed, CASE, rank)]
    assert torch.equal(torch.cat(own), batch.tokens)
    assert {len(rows) for rows in own} == {parsed.micro_batch}


def test_the_reference_is_one_plain_adamw_run(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """Sums and counts by sequence give the loss; the update is AdamW's first, which no gradient's size changes."""
    case = replace(CASE, global_batch=4, steps=1)
    known = write_reference(case, str(tmp_path / "reference.pt"))
    assert known["loss"][0] == pytest.approx(sum(known["sums"]) / sum(known["counts"]), rel=1e-12)
    file = read_reference(str(tmp_path / "reference.pt"))
    norm = torch.stack([g.square().sum() for g in file.gradients[0].values()]).sum().sqrt()
    assert known["grad_norm"][0] == pytest.approx(float(norm), rel=1e-12)
    before, after = file.parameters
    name = "layers.3.mlp.up.weight"
    gradient = file.gradients[0][name] * min(1, 1 / (float(norm) + 1e-6))
    by_hand = before[name] * (1 - 1e-3 * 0.1) - 1e-3 * gradient / (gradient.abs() + 1e-4)
    assert torch.allclose(after[name], by_hand, rtol=1e-12, atol=1e-15)
