"""A rehearsal is a real run on gloo: the same collectives in the same order, the same bytes at the peak."""

from __future__ import annotations

from typing import Any

import pytest

from meshwright.rehearse.session import rehearse_ranks
from meshwright.train.launch.pool import RankPool
from tests.rehearse.real import job_of, real_step

CASES = [
    ("bench-6m", "ddp2", 256, 4, "fp32"),
    ("bench-6m", "zero2:2", 256, 4, "fp32"),
    ("bench-6m", "fsdp2", 256, 4, "fp32"),
    ("bench-6m", "hsdp2x2", 256, 4, "bf16"),
    ("bench-6m", "tp2", 256, 2, "fp32"),
    ("tiny-gpt2", "tp4:nosp", 64, 2, "bf16"),
    ("bench-6m", "cp2", 256, 2, "fp32"),
    ("bench-6m", "cp2:ulysses ddp2", 256, 2, "fp32"),
    ("bench-6m", "pp2:1f1b", 256, 4, "fp32"),
    ("bench-6m", "ddp2 pp2:zbvzerobubble", 256, 8, "fp32"),
    ("bench-6m", "fsdp2 pp2:interleaved1f1b", 256, 8, "bf16"),
    ("bench-6m", "fsdp2 tp2 ac:selective", 256, 4, "bf16"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[1]} {case[4]}".replace(" ", "-"))
def test_collectives_are_the_same_in_the_same_order_and_the_peak_is_within_two_percent(
    ranks: RankPool, case: tuple[Any, ...]
) -> None:
    job = job_of(*case)
    world = job.layout.devices
    each = world // job.layout.pipeline
    real = ranks.run(real_step, *case, world=world)
    firsts = list(range(0, world, each))
    for rehearsed in rehearse_ranks(job, firsts):
        alike = real[rehearsed.rank : rehearsed.rank + each]
        assert rehearsed.collectives == alike[0][1]
        # Ranks of a stage do the same; one of them may get memory back late, from a thread of gloo.
        least = min(peak for peak, _ in alike)
        assert rehearsed.peak_bytes == pytest.approx(least, rel=0.02)


def test_a_mixtures_collectives_are_as_many_and_its_router_alone_decides_the_bytes(ranks: RankPool) -> None:
    case = ("tiny-mixtral", "ddp2 ep2", 64, 4, "fp32")
    (real, _) = ranks.run(real_step, *case, world=2)
    (rehearsed,) = rehearse_ranks(job_of(*case), [0])
    spread = "expert all-to-all"

    def apart(log: tuple[str, ...]) -> tuple[list[str], int, int]:
        tokens = [int(line.split()[-1]) for line in log if line.startswith(spread)]
        return [line for line in log if not line.startswith(spread)], len(tokens), sum(tokens)

    others, count, size = apart(real[1])
    assert apart(rehearsed.collectives)[:2] == (others, count)
    assert apart(rehearsed.collectives)[2] == pytest.approx(size, rel=0.2)
