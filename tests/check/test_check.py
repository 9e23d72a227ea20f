"""Layouts compute what one process computes; what is compared is able to differ."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright.check import sweep
from meshwright.train.launch.pool import RankPool
from tests.check.cases import COMPLETE, checked, failures, nano


@pytest.mark.parametrize("model", COMPLETE)
def test_every_mode_computes_what_one_process_computes(
    ranks: RankPool, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    """With accumulation, where the batch has room for it; the tests of faults and dtypes run without, too."""
    monkeypatch.setattr(sweep, "ACCUMULATIONS", (2,))
    result = checked(ranks, nano(model), COMPLETE[model])
    assert failures(result) == []
    for one in result.layouts:
        assert one.parameters == result.parameters
        assert max(one.loss_error, one.grad_norm_error, one.worst_gradient.error, one.worst_update.error) <= 1e-9
        assert one.replicas_identical
        assert one.micro_batches > (1,)


def test_without_accumulation_and_with_it_are_two_runs(ranks: RankPool) -> None:
    (one,) = checked(ranks, nano("llama", steps=1), "ddp2").layouts
    assert one.micro_batches == (1, 2)


def test_float32_agrees_to_its_own_rounding(ranks: RankPool) -> None:
    result = checked(ranks, nano("llama", dtype="float32", steps=3), "fsdp2 tp2, pp2:1f1b")
    assert failures(result) == []
    assert {one.tolerance for one in result.layouts} == {1e-5}
    # float32 leaves traces that float64 does not: what ran was not float64.
    assert max(one.worst_gradient.error for one in result.layouts) > 1e-9


def test_sgd_agrees_too(ranks: RankPool) -> None:
    assert failures(checked(ranks, nano("llama", optimizer="sgd", lr=0.1), "fsdp2, pp2:zbvzerobubble")) == []


@pytest.mark.parametrize("model", ["llama", "deepseek"])
def test_documents_that_do_not_see_each_other_are_apart_under_every_split(ranks: RankPool, model: str) -> None:
    layouts = "cp2:ring, cp2:allgather, cp2:ulysses, tp2 pp2:zbvzerobubble"
    case = nano(model, packed=True, steps=1)
    result = checked(ranks, case, layouts)
    assert failures(result) == []
    assert result.loss != checked(ranks, replace(case, packed=False), "ddp2").loss


def test_three_steps_are_three_different_ones(ranks: RankPool) -> None:
    result = checked(ranks, nano("llama", steps=3), "ddp2")
    assert len(set(result.loss)) == len(set(result.grad_norm)) == 3
