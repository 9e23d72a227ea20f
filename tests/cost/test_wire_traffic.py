"""`wire` (our runtime, exact) beside `cost.traffic` (runtimes at large, for the search): equal where both count the
same, and each difference is one that is named here."""

from __future__ import annotations

import pytest

from meshwright.cost.estimate import estimate
from meshwright.cost.parameters import parameters
from meshwright.cost.wire import WireOptions, wire
from meshwright.spec.cluster import Cluster, Device, Link
from meshwright.spec.model import Model
from meshwright.spec.model_config import load_model
from meshwright.spec.notation import parse_layout
from meshwright.spec.workload import make_workload

DEVICE = Device("D", 8000 * 2.0**30, 2e12, {"bf16": 300e12})
FAST, SLOW = Link("fast", 300e9, 3e-6), Link("slow", 25e9, 10e-6)
BF16 = WireOptions(kept=2, compute=2, reduce=2, activation=2, table=2, balance=False)
DATA = ("shard", "replicate", "expert_data", "expert_shard", "expert_replicate")
SEQ, BATCH = 4096, 64

LLAMA = load_model("llama-3-8b")
MIXTRAL = load_model("mixtral-8x7b")


def both(model: Model, text: str, rank: int = 0) -> tuple[dict[tuple[str, str], float], dict[tuple[str, str], float]]:
    """Bytes by axis and collective: of `cost.traffic` and of `wire`. Shards and replicas are `data`, as there."""
    layout, workload = parse_layout(text), make_workload(SEQ, BATCH)
    n = layout.devices
    cluster = Cluster(f"{n}xD", DEVICE, -(-n // 8), min(n, 8), FAST, SLOW, min(n, 8))
    smooth = {
        (row.axis, row.collective.removesuffix("/recv")): row.bytes
        for row in estimate(model, cluster, workload, layout).traffic
    }
    exact: dict[tuple[str, str], float] = {}
    for row in wire(model, workload, layout, rank, BF16):
        if not row.small:
            key = "data" if row.axis in DATA else row.axis, row.collective
            exact[key] = exact.get(key, 0.0) + row.bytes
    return smooth, exact


@pytest.mark.parametrize("text", ["ddp8", "zero1:8", "zero2:8", "ddp2 zero1:4", "zero2:8 mbs2"])
def test_gradients_and_gathers_of_ddp_and_the_first_zero_stages_agree(text: str) -> None:
    smooth, exact = both(LLAMA, text)
    assert exact == pytest.approx(smooth, rel=1e-12)


@pytest.mark.parametrize("text", ["ddp2 pp4:1f1b", "zero1:2 pp4:interleaved1f1b:2"])
def test_messages_of_a_pipeline_agree_and_gradients_on_the_rank_of_the_head(text: str) -> None:
    smooth, last = both(LLAMA, text, rank=7)
    inner = both(LLAMA, text, rank=2)[1]  # sends to both sides
    assert inner["pipeline", "send"] == smooth.pop(("pipeline", "send"))
    del last["pipeline", "send"]
    assert last == pytest.approx(smooth, rel=1e-12)


def test_all_to_alls_of_experts_agree() -> None:
    for text in ("fsdp8 ep8", "fsdp2 tp4 ep8"):
        smooth, exact = both(MIXTRAL, text)
        assert exact["expert", "all-to-all"] == smooth["expert", "all-to-all"]


def test_traffic_gathers_table_and_head_twice_where_fsdp2_keeps_them_from_forward_to_backward() -> None:
    smooth, exact = both(LLAMA, "fsdp8")
    assert exact["data", "reduce-scatter"] == smooth["data", "reduce-scatter"]
    part = parameters(LLAMA)
    twice = (part.embedding + part.head + part.final) * 2 * 7 / 8
    assert smooth["data", "all-gather"] - exact["data", "all-gather"] == pytest.approx(8 * twice, rel=1e-9)


def test_traffic_gathers_shards_every_micro_batch_of_a_pipeline_where_the_runtime_keeps_them() -> None:
    smooth, exact = both(LLAMA, "fsdp2 pp4:1f1b", rank=7)
    assert exact["data", "reduce-scatter"] == pytest.approx(smooth["data", "reduce-scatter"], rel=1e-12)
    assert exact["data", "all-gather"] == exact["data", "reduce-scatter"]
    assert smooth["data", "all-gather"] > 60 * exact["data", "all-gather"]


def test_traffic_leaves_out_the_regions_of_table_and_head() -> None:
    smooth, exact = both(LLAMA, "ddp2 tp4")
    hidden = SEQ * LLAMA.hidden * 2 * 3 / 4
    for collective in ("all-gather", "reduce-scatter"):
        missing = exact["tensor", collective] - smooth["tensor", collective]
        assert missing == pytest.approx(32 * 2 * hidden)  # forward and backward, of 32 micro-batches
    # And the loss of a split vocabulary, fp32 maxima and two sums a token, and the norms' gradients once.
    norms = 65 * LLAMA.hidden * 2
    assert exact["tensor", "all-reduce"] == pytest.approx(2 * 3 / 4 * (32 * 3 * SEQ * 4 + norms))
    assert ("tensor", "all-reduce") not in smooth


def test_traffic_repeats_a_recomputed_blocks_last_sum_which_pytorch_does_not() -> None:
    smooth, exact = both(LLAMA, "ddp2 tp4 ac:full")
    hidden = SEQ * LLAMA.hidden * 2 * 3 / 4
    difference = smooth["tensor", "reduce-scatter"] - exact["tensor", "reduce-scatter"]
    assert difference == pytest.approx(32 * (32 - 2) * hidden)  # a block each, less table and head


@pytest.mark.parametrize(("kind", "ratio"), [("ring", 3 / 4), ("allgather", 1 / 2)])
def test_traffic_sends_gradients_of_keys_and_values_in_16_bit_where_the_runtime_adds_them_in_fp32(
    kind: str, ratio: float
) -> None:
    smooth, exact = both(LLAMA, f"ddp2 cp4:{kind}")
    key = ("context", "send" if kind == "ring" else "reduce-scatter")
    assert smooth[key] == pytest.approx(ratio * exact[key])
    if kind == "allgather":
        assert smooth["context", "all-gather"] == exact["context", "all-gather"]


def test_ulysses_agrees() -> None:
    smooth, exact = both(LLAMA, "ddp2 cp4:ulysses")
    assert exact["context", "all-to-all"] == pytest.approx(smooth["context", "all-to-all"], rel=1e-12)
