"""What data parallelism really sends in a step, counted at the process group."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from meshwright.modes.gradients import complete_gradients, end_step, micro_batch
from meshwright.modes.mesh import make_mesh
from meshwright.modes.options import Options
from meshwright.modes.parallelize import parallelize
from meshwright.modes.record import Recorder
from meshwright.spec.notation import parse_layout
from meshwright.train.launch.pool import RankPool
from meshwright.train.models.build import build_model
from meshwright.train.models.init import init_module

MODEL = str(Path(__file__).parents[1] / "check" / "models" / "nano-llama.json")


def sent(layout: str, micro_batches: int, **options: float) -> list[dict[str, tuple[int, float]]]:
    """By micro-batch, and at last the end of the step: calls and bytes that this rank sent, by kind; third step.

    DDP orders its buckets anew when the second one begins.
    """
    mesh = make_mesh(parse_layout(layout))
    model = build_model(MODEL, device="cpu")
    init_module(model, 0)
    parallel = parallelize(model, mesh, options=Options(**options))  # type: ignore[arg-type]
    tokens, positions = torch.arange(16).view(2, 8), torch.arange(8).expand(2, -1)
    found = []
    for step in range(3):
        for index in range(micro_batches):
            with Recorder(mesh) as record, micro_batch(parallel, last=index == micro_batches - 1):
                parallel.runners[0](tokens, positions).square().mean().backward()
            found += [record.entries] if step == 2 else []
        with Recorder(mesh) as record:
            complete_gradients(parallel)
        found += [record.entries] if step == 2 else []
        end_step(parallel)
        for part in parallel.parts:
            part.parameter.grad = None
    sums = []
    for entries in found:
        kinds = {entry.collective for entry in entries if entry.ranks > 1}
        of_kind = {kind: [entry for entry in entries if entry.collective == kind] for kind in kinds}
        sums.append({kind: (len(some), sum(entry.sent for entry in some)) for kind, some in of_kind.items()})
    return sums


def numbers() -> int:
    return sum(parameter.numel() for parameter in build_model(MODEL).parameters())


def totals(steps: list[dict[str, tuple[int, float]]]) -> float:
    return sum(amount for step in steps for _, amount in step.values())


@pytest.fixture(scope="module")
def ddp(ranks: RankPool) -> float:
    """Bytes that a rank of DDP sends in a step on 2 ranks: 2 · 1/2 · P · 4."""
    of_rank = ranks.run(sent, "ddp2", 1, world=2)
    assert {totals(steps) for steps in of_rank} == {4.0 * numbers()}
    return totals(of_rank[0])


@pytest.mark.parametrize(("layout", "times"), [("zero1:2", 1.0), ("zero2:2", 1.0), ("fsdp2", 1.5)])
def test_zero_1_and_2_send_what_ddp_sends_and_3_half_as_much_again(
    ranks: RankPool, ddp: float, layout: str, times: float
) -> None:
    """Stage 3 gathers twice: but for embedding, norm and head, which stay gathered; and uneven rows are padded."""
    model = build_model(MODEL)
    blocks = sum(parameter.numel() for parameter in model.layers.parameters())
    rest = numbers() - blocks
    expected = ddp + (times - 1) * 2 * blocks / 2 * 4
    for steps in ranks.run(sent, layout, 1, world=2):
        assert expected <= totals(steps) <= expected + 2 * 4 * 2 * 16  # 67 rows of 16 are padded to 68, in two tables
    assert blocks > 2 * rest


def test_accumulation_makes_ddp_and_zero_1_talk_once(ranks: RankPool) -> None:
    for layout, gathers in (("ddp2", 0), ("zero1:2", 1)):
        for first, second, third, _ in ranks.run(sent, layout, 3, world=2):
            assert "all-reduce" not in first
            assert "reduce-scatter" not in first
            assert ("all-gather" in first) == bool(gathers)
            assert second == {}
            assert set(third) == ({"reduce-scatter"} if gathers else {"all-reduce"})


def test_zero_2_sums_every_micro_batch_and_gathers_once(ranks: RankPool) -> None:
    for first, second, _ in ranks.run(sent, "zero2:2", 2, world=2):
        assert set(first) == {"all-gather", "reduce-scatter"}
        assert set(second) == {"reduce-scatter"}
        assert first["reduce-scatter"] == second["reduce-scatter"]


def test_zero_3_gathers_and_sums_every_micro_batch(ranks: RankPool) -> None:
    for first, second, _ in ranks.run(sent, "fsdp2", 2, world=2):
        assert set(first) == set(second) == {"all-gather", "reduce-scatter"}
        assert first["reduce-scatter"] == second["reduce-scatter"]


def test_replicas_of_a_sharded_model_sum_their_shards_once(ranks: RankPool) -> None:
    for first, second, _ in ranks.run(sent, "hsdp2x2", 2):
        assert "all-reduce" not in first
        assert second["all-reduce"][1] >= 4.0 * numbers() / 2  # a half each, 2 · 1/2 of it


def test_smaller_buckets_are_more_all_reduces_of_the_same_bytes(ranks: RankPool) -> None:
    one, _ = ranks.run(sent, "ddp2", 1, world=2)[0]
    many, _ = ranks.run(sent, "ddp2", 1, bucket_mb=0.01, world=2)[0]
    assert one["all-reduce"][0] == 1
    assert many["all-reduce"][0] > 2
    assert many["all-reduce"][1] == one["all-reduce"][1]


def test_prefetching_changes_when_and_not_what(ranks: RankPool) -> None:
    usual = ranks.run(sent, "fsdp2", 1, world=2)
    for prefetch in (0, 3):
        assert ranks.run(sent, "fsdp2", 1, prefetch=prefetch, world=2) == usual
