"""Peak memory of a CPU rank."""

from __future__ import annotations

import torch

from meshwright.bench.meter import Meter, peak


def test_the_peak_is_the_highest_running_sum_in_time_order() -> None:
    assert peak([(3, 0xA, -8), (1, 0xA, 8), (2, 0xB, 4), (4, 0xC, 2)]) == 12
    assert peak([]) == 0


def test_memory_that_a_collectives_thread_freed_is_not_counted_twice() -> None:
    assert peak([(1, 0xA, 8), (2, 0xA, 8), (3, 0xB, 4)]) == 12


def test_what_was_there_before_is_not_ours() -> None:
    assert peak([(1, 0xA, -100), (2, 0xB, 4)]) == 4


def test_the_meter_counts_tensors_that_live_at_once_and_nothing_else() -> None:
    before = torch.zeros(1_000_000)
    with Meter(torch.device("cpu")) as meter:
        kept = torch.empty(1_000_000)  # 4 MB
        del before  # was there before: not ours
        for _ in range(3):
            once = torch.empty(2_000_000)  # 8 MB, one at a time
            del once
    assert kept.numel() == 1_000_000
    assert meter.peak_bytes == 12_000_000
