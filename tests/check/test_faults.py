"""`check` can fail: the known bugs of released runtimes, put into this one, are found and named."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from meshwright.spec.notation import parse_layouts
from meshwright.train.launch.pool import RankPool
from tests.check import faults
from tests.check.cases import COMPLETE, checked, failures, nano

Fault = Callable[[], AbstractContextManager[None]]

FAULTS: list[tuple[Fault, str, str, tuple[str, ...]]] = [
    (faults.mean_of_rank_means, "llama", "ddp2", ("the loss is the mean of the data ranks' means, not the mean over",)),
    (
        faults.mean_of_micro_batch_means,
        "llama",
        "ddp2, pp2:gpipe",
        ("the mean of the micro-batches' means",),
    ),
    (faults.masked_tokens_counted, "llama", "fsdp2", ("the loss is the mean over all tokens, masked ones too",)),
    (faults.ddp_averages, "llama", "ddp2", ("gradients × 0.5 = 1 / data-parallel ranks",)),
    (faults.ddp_times_world, "llama", "ddp2", ("gradients × 2 = data-parallel ranks",)),
    (faults.fsdp_averages, "llama", "hsdp2x2", ("gradients × 0.25 = 1 / data-parallel ranks",)),
    (faults.scale_grads, "llama", "pp2:zbvzerobubble", ("gradients × 0.25 = 1 / micro-batches",)),
    (faults.pipeline_times_micro_batches, "llama", "pp2:1f1b", ("gradients × 4 = micro-batches",)),
    (faults.pipeline_times_tokens, "llama", "pp2:1f1b", ("gradients × 65 = target tokens of the step",)),
    (
        faults.experts_doubled,
        "mixtral",
        "ddp2 ep2",
        ("gradients of layers.*.moe.experts.* × 2 = expert degree",),
    ),
    (faults.context_not_summed, "llama", "ddp2 cp2", ("copies of one parameter differ along context",)),
    (
        faults.norms_not_summed_over_tensor,
        "llama",
        "tp2",
        (
            "gradients of layers.*.attention_norm.weight, layers.*.mlp_norm.weight, norm.weight differ",
            "copies of one parameter differ along tensor",
        ),
    ),
    (
        faults.tied_not_summed,
        "tied",
        "pp2:1f1b",
        ("gradients of embed.tokens.weight differ", "copies of one parameter differ along pipeline"),
    ),
    (
        faults.norm_of_own_stage,
        "llama",
        "pp2:1f1b",
        ("ranks disagree on the gradient norm along pipeline: each clips by its own",),
    ),
    (faults.norm_counts_copies, "llama", "ddp2", ("the gradients agree, their norm is × 1.414",)),
    (faults.layers_dropped, "tied", "pp4:1f1b", ("4,672 parameters are on no rank: layers 4, 5 dropped",)),
    (faults.last_micro_batch_alone, "llama", "ddp2", ("gradients differ with 2 micro-batches, not with 1",)),
    (
        faults.optimizer_of_old_parameters,
        "llama",
        "fsdp2",
        ("updates are zero: the optimizer holds other tensors than the model",),
    ),
    (faults.stale_gathered_parameters, "llama", "zero1:2", ("from step 2 on",)),
    (faults.other_seed_on_one_rank, "llama", "ddp2", ("the weights differ before the first step",)),
    (faults.loss_overflows, "llama", "ddp2", ("the loss is not a number",)),
    (faults.crash_on_one_rank, "llama", "ddp2", ("did not run: KeyError: 'a bug' (check/faults.py:",)),
]


def test_all_that_the_faults_break_passes_without_them() -> None:
    for _, model, layouts, _ in FAULTS:
        assert set(parse_layouts(layouts)) <= set(parse_layouts(COMPLETE[model]))  # test_check.py runs these


@pytest.mark.parametrize(("fault", "model", "layouts", "words"), FAULTS, ids=[row[0].__name__ for row in FAULTS])
def test_a_known_bug_is_found_and_named(
    ranks: RankPool, fault: Fault, model: str, layouts: str, words: tuple[str, ...]
) -> None:
    for one in checked(ranks, nano(model), layouts, prepare=fault).layouts:
        assert not one.passed
        for expected in words:
            assert expected in one.explanation


def test_a_fault_ends_with_its_run(ranks: RankPool) -> None:
    assert failures(checked(ranks, nano("llama", steps=1), "ddp2", prepare=faults.ddp_averages))
    assert failures(checked(ranks, nano("llama", steps=1), "ddp2")) == []
