"""What is offloaded is in the host's memory, and the device is spared exactly that."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from meshwright.rehearse.hosted import host_lines
from meshwright.rehearse.ledger import Ledger
from meshwright.rehearse.moves import Moves
from meshwright.rehearse.parts import levels
from meshwright.rehearse.places import Places
from meshwright.rehearse.session import rehearse_ranks
from meshwright.train.metrics.prediction import predict
from tests.rehearse.test_formulas import job_of

OFFLOADED = "fsdp8 offload:optimizer+parameters"
# tiny-llama: 8 layers of hidden 128, 4 heads of 32, 2 for keys and values, feed-forward 256, vocabulary 512, untied.
PARAMETERS = 8 * (128 * (128 + 64 + 64 + 128) + 3 * 128 * 256 + 2 * 128) + 128 + 2 * 512 * 128


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_the_host_has_sixteen_bytes_a_parameter_and_the_device_is_spared_them(precision: str) -> None:
    job, plain = (job_of("tiny-llama", layout, 16, precision=precision) for layout in (OFFLOADED, "fsdp8"))
    (offloaded,), (stayed,) = rehearse_ranks(job, [0]), rehearse_ranks(plain, [0])
    share = PARAMETERS / 8
    # AdamW counts the steps of each of 9 tensors a layer and 3 more.
    states = {"parameters": 4 * share, "gradients": 4 * share, "optimizer": 8 * share + 4 * 75}
    assert {name: offloaded.host_parts[name] for name in states} == states
    assert not set(states) & set(offloaded.parts)
    assert stayed.host_bytes == 0
    assert stayed.peak_bytes - offloaded.peak_bytes == sum(states.values())
    kept, there = host_lines(job, offloaded, predict(job).estimate)
    assert kept.agrees
    assert kept.rehearsed == sum(states.values())
    # The Estimate has no counters; the program one parameter's gradient more while it adds up micro-batches.
    assert there.formula == 16 * share
    assert there.rehearsed - there.formula <= 4 * 128 * 512 / 8 + 4 * 75


def test_a_cpu_keeps_what_it_offloads_where_it_is() -> None:
    (found,) = rehearse_ranks(job_of("tiny-llama", "fsdp2 offload:optimizer+parameters", 2, "2xcpu", "fp32"), [0])
    assert found.host_bytes == 0
    assert found.parts["parameters"] == 4 * PARAMETERS / 2


def test_what_is_made_of_the_hosts_tensors_is_there_until_it_is_moved() -> None:
    with Places(infer=True) as places, FakeTensorMode(), Ledger(places) as ledger:
        shard = torch.empty(100)
        ledger.put_on_host(shard)
        moment = torch.zeros_like(shard)
        other = torch.empty(10)
        with Moves(ledger):
            there = shard.to(torch.device("cpu"))
            back = other.to(torch.device("cpu"))
            same = shard.to(torch.float64)
        narrow = there.to(torch.bfloat16)
    assert [ledger.on_host(tensor) for tensor in (shard, moment, same, back)] == [True] * 4
    assert [ledger.on_host(tensor) for tensor in (other, there, narrow)] == [False] * 3
    assert levels(ledger.account)[-1] == 4 * (10 + 100) + 2 * 100
    assert levels(ledger.account, host=True)[-1] == 4 * (100 + 100 + 10) + 8 * 100
