"""What a row says of a run that hung or failed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from meshwright.bench.crew import explained, failure, keep
from meshwright.bench.result import FAILED, TIMED_OUT
from meshwright.train.launch.pool import RankError, RankPool, RankTimeoutError


def never_joins() -> None:
    dist.all_reduce(torch.ones(8))
    if dist.get_rank() == 1:
        time.sleep(60)
    dist.all_reduce(torch.ones(8))


def test_a_row_that_timed_out_names_the_rank_that_the_others_wait_for(ranks: RankPool, tmp_path: Path) -> None:
    ranks.renew()  # or what ran before would be in the dumps, too
    with pytest.raises(RankTimeoutError) as caught:
        ranks.run(never_joins, world=2, timeout=10)
    keep(caught.value, tmp_path)
    outcome = explained(failure(caught.value), tmp_path)
    assert outcome.status == TIMED_OUT
    assert "waits for rank 1" in outcome.reason
    assert outcome.reason.endswith("(still running after 10 s: rank 0, 1 of 2)")


def goes_on(pause: float) -> None:
    while True:
        dist.all_reduce(torch.ones(8))
        time.sleep(pause * dist.get_rank())


@pytest.mark.parametrize("pause", [0.01, 1.8])
def test_of_a_row_that_was_only_slow_no_rank_is_accused(ranks: RankPool, tmp_path: Path, pause: float) -> None:
    ranks.renew()
    with pytest.raises(RankTimeoutError) as caught:
        ranks.run(goes_on, pause, world=2, timeout=7)
    assert len(caught.value.dumps) == 2
    keep(caught.value, tmp_path)
    outcome = explained(failure(caught.value), tmp_path)
    assert (outcome.status, outcome.reason) == (TIMED_OUT, "still running after 7 s: rank 0, 1 of 2")


def test_a_row_whose_error_no_rule_knows_keeps_its_reason(tmp_path: Path) -> None:
    error = RankError("rank 1 of 2: ended with exit code 7")
    keep(error, tmp_path)
    assert explained(failure(error), tmp_path) == failure(error)
    assert failure(error).status == FAILED
