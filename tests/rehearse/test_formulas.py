"""What the formulas say of a rank is what its program does: bytes of states, FLOPs and collectives, to the last one."""

from __future__ import annotations

import pytest

from meshwright.rehearse import rank as rehearse_one
from meshwright.rehearse.compare import compare_rank
from meshwright.rehearse.job import make_job
from meshwright.rehearse.session import ALL_DISTINCT, STAGE_FIRSTS, ranks_of, rehearse_ranks
from meshwright.train.config.job import Job


def job_of(model: str, layout: str, global_batch: int, cluster: str = "8xH100", precision: str = "bf16") -> Job:
    return make_job(model, cluster, layout, seq_len=64, global_batch=global_batch, precision=precision)


@pytest.mark.parametrize(
    ("model", "layout", "global_batch", "which"),
    [
        ("tiny-llama", "ddp2", 32, "0"),
        ("tiny-gpt2", "fsdp4 tp2", 16, ALL_DISTINCT),
        ("tiny-gpt2", "ddp2 pp4:1f1b", 32, STAGE_FIRSTS),
        ("tiny-qwen2", "zero1:4 pp2:interleaved1f1b", 64, STAGE_FIRSTS),
        ("tiny-qwen3", "hsdp2x2 cp2", 8, "0"),
        ("tiny-mixtral", "fsdp8 ep4", 8, "0"),
        ("tiny-qwen2-moe", "zero2:2 tp2 cp2", 8, "5"),
        ("tiny-deepseek", "fsdp4 tp2 ep4", 16, ALL_DISTINCT),
        ("tiny-deepseek", "zero1:4 pp2:1f1b ep2", 64, STAGE_FIRSTS),
        ("tiny-deepseek", "ddp2 tp2:nosp cp2:ulysses", 8, "0"),
    ],
)
def test_states_flops_and_collectives_of_a_rank_are_those_of_the_formulas(
    model: str, layout: str, global_batch: int, which: str
) -> None:
    job = job_of(model, layout, global_batch)
    for found in rehearse_ranks(job, ranks_of(job.layout, which)):
        lines = compare_rank(job, found)
        judged = [line for line in lines if line.tolerance is not None]
        assert [line for line in judged if not line.agrees] == []
        names = {line.name for line in judged}
        assert {"parameters", "gradients", "optimizer", "attention FLOPs"} <= names
        assert len(names) > 4  # and collectives


def test_on_a_cpu_narrow_values_are_filled_up_to_the_keys_width() -> None:
    job = job_of("tiny-deepseek", "fsdp2 cp2", 8, cluster="8xcpu", precision="fp32")
    (found,) = rehearse_ranks(job, [0])
    assert [line for line in compare_rank(job, found, None) if not line.agrees] == []


def test_one_rank_of_tiny_llama_has_the_bytes_and_flops_of_a_hand_calculation() -> None:
    # 8 layers of hidden 128, 4 heads of 32, 2 of them for keys and values, feed-forward 256, vocabulary 512, untied.
    layer = 128 * (128 + 64 + 64 + 128) + 3 * 128 * 256 + 2 * 128
    parameters = 8 * layer + 128 + 2 * 512 * 128
    (found,) = rehearse_ranks(job_of("tiny-llama", "ddp1", 1, "8xcpu", "fp32"), [0])
    assert found.states["parameters"] == found.states["gradients"] == 4 * parameters
    assert found.states["optimizer"] == 8 * parameters + 4 * 75  # 9 tensors a layer and 3 more, each with a counter
    multiplied = 8 * (layer - 2 * 128) + 512 * 128
    assert sum(kinds["matmul"] for kinds in found.flops.values() if "matmul" in kinds) == 6 * multiplied * 64
    # Causal: 64 queries of 4 heads see 32 keys on average; 2 products forward, 5 backward, of 2·32 FLOPs a pair.
    assert sum(kinds["attention"] for kinds in found.flops.values() if "attention" in kinds) == 8 * 7 * 64 * 32 * 4 * 64


@pytest.mark.parametrize(
    ("layout", "rank", "run"),
    [("fsdp2", 0, 3), ("zero2:2 pp2:1f1b ac:full", 0, 4), ("ddp1 pp4:1f1b", 2, 6), ("ddp1 pp2:interleaved1f1b", 0, 6)],
)
def test_micro_batches_that_stand_for_others_leave_a_step_as_it_is(
    monkeypatch: pytest.MonkeyPatch, layout: str, rank: int, run: int
) -> None:
    job = job_of("tiny-qwen3", layout, 24 if "2" in layout.split()[0] else 12)
    (some,) = rehearse_ranks(job, [rank])
    monkeypatch.setattr(rehearse_one, "run_of", lambda _, micro_batches: micro_batches)
    (every,) = rehearse_ranks(job, [rank])
    assert (some.micro_batches_run, every.micro_batches_run) == (run, 12)
    assert some.peak_bytes == every.peak_bytes
    assert (some.states, some.flops) == (every.states, every.flops)
    assert sorted(map(str, some.traffic)) == sorted(map(str, every.traffic))


def test_a_rank_whose_experts_are_popular_needs_more_memory() -> None:
    job = job_of("tiny-mixtral", "ddp4 ep4", 8)
    (even,), (popular,) = rehearse_ranks(job, [0]), rehearse_ranks(job, [0], imbalance=2.0)
    assert popular.peak_bytes > even.peak_bytes


def test_accumulating_micro_batches_under_ddp_takes_no_second_set_of_gradients() -> None:
    (one,), (three,) = (rehearse_ranks(job_of("tiny-llama", "ddp4", 4 * n), [0]) for n in (1, 3))
    assert three.peak_bytes - one.peak_bytes < one.states["gradients"] / 2
