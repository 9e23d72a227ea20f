"""Bytes on the wire, counted by hand.

The model has 2 layers of 592 parameters: q 64, k and v 32 each, o 64, gate, up and down 128 each, norms 8 each; table
and head 256 each, last norm 8: 1,704. Sequences of 256 tokens: hidden states of a sequence are 8,192 bytes in fp32.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright.cost.stage_layers import layers_of_stages
from meshwright.cost.wire import WireOptions, WireRow, compare, shared_axis, wire
from meshwright.cost.wire.place import axis_ranks
from meshwright.spec.errors import LayoutError, WorkloadError
from meshwright.spec.model import Experts, Model
from meshwright.spec.notation import parse_layout
from meshwright.spec.workload import Tuning, Workload

MODEL = Model("m", 2, 8, 4, 2, 2, 16, 32)
MIXTURE = replace(MODEL, experts=Experts(4, 2, 16))
BLOCK, EDGES = 592, 520
HIDDEN = 8192
FP32 = WireOptions.uniform(4, balance=False)

Sent = dict[tuple[str, str], tuple[int, float]]


def sent(text: str, model: Model = MODEL, *, rank: int = 0, batch: int = 4, options: WireOptions = FP32) -> Sent:
    """Count and bytes by axis and collective, small ones and large ones together, without the gradient norm."""
    found: Sent = {}
    for row in wire(model, Workload(256, batch), parse_layout(text), rank, options):
        if row.axis != "world":
            count, size = found.get((row.axis, row.collective), (0, 0.0))
            found[row.axis, row.collective] = count + row.count, size + row.bytes
    return found


def test_ddp_sends_each_gradient_twice_but_for_a_ranks_share() -> None:
    assert sent("ddp2") == {("data", "all-reduce"): (0, 4 * 1704)}
    assert sent("ddp4") == {("data", "all-reduce"): (0, 2 * 3 / 4 * 4 * 1704)}


def test_zero1_and_zero2_send_ddps_bytes_and_zero2_again_for_more_micro_batches() -> None:
    half = 4 * 1704 / 2  # two blocks and the rest: 3 collectives
    assert sent("zero1:2") == {("shard", "all-gather"): (3, half), ("shard", "reduce-scatter"): (3, half)}
    assert sent("zero2:2") == {("shard", "all-gather"): (3, half), ("shard", "reduce-scatter"): (6, 2 * half)}
    assert sent("zero2:2 mbs2") == sent("zero1:2 mbs2")


def test_fsdp_gathers_blocks_twice_and_the_rest_once_a_micro_batch() -> None:
    assert sent("fsdp2") == {
        ("shard", "all-gather"): (2 * 5, 2 * 4 * (2 * 2 * BLOCK + EDGES) / 2),
        ("shard", "reduce-scatter"): (2 * 3, 2 * 4 * 1704 / 2),
    }
    assert sent("fsdp2 ac:full") == sent("fsdp2")


def test_fsdp_pads_dim_0_of_every_parameter() -> None:
    # Rows 8 → 9, 4 → 6, 16 → 18, 32 → 33: q 72, k and v 48 each, o 72, gate and up 144 each, down 144, norms 9 each.
    block, edges = 72 + 2 * 48 + 72 + 3 * 144 + 2 * 9, 2 * 33 * 8 + 9
    (count, size) = sent("fsdp3", batch=3)["shard", "all-gather"]
    assert (count, size) == (5, pytest.approx(2 / 3 * 4 * (4 * block + edges)))


def test_hybrid_sharding_sums_shards_over_replicas_once_a_step() -> None:
    found = sent("hsdp2x2", batch=8)
    assert found["replicate", "all-reduce"] == (3, 4 * 1704 / 2)
    assert found["shard", "reduce-scatter"] == (6, 2 * 4 * 1704 / 2)


def test_gathers_travel_in_the_compute_dtype_and_gradients_in_the_reduce_dtype() -> None:
    found = sent("zero1:2", options=WireOptions(kept=4, compute=2, reduce=4, activation=2, table=2))
    assert found == {("shard", "all-gather"): (3, 2 * 1704 / 2), ("shard", "reduce-scatter"): (3, 4 * 1704 / 2)}


def test_tensor_ranks_gather_and_scatter_at_every_region() -> None:
    # A micro-batch: two pairs forward and two backward a layer, one each at table and head; 4 micro-batches.
    found = sent("tp2")
    assert found["tensor", "all-gather"] == found["tensor", "reduce-scatter"] == (4 * 10, 4 * 10 * HIDDEN / 2)
    # The loss: maxima and two sums of 256 tokens; and once the 5 norms of 8.
    assert found["tensor", "all-reduce"] == (4 * 2 + 1, 4 * (1024 + 2048) + 5 * 8 * 4)


def test_without_sequence_parallelism_the_same_bytes_are_all_reduces() -> None:
    assert sent("tp2:nosp") == {("tensor", "all-reduce"): (4 * (10 + 2), 4 * (10 * HIDDEN + 1024 + 2048))}


def test_full_recomputation_repeats_a_layers_forward_but_for_its_last_sum() -> None:
    found = sent("tp2 ac:full")
    assert found["tensor", "all-gather"] == (4 * 14, 4 * 14 * HIDDEN / 2)
    assert found["tensor", "reduce-scatter"] == (4 * 12, 4 * 12 * HIDDEN / 2)
    assert sent("tp2 ac:selective") == sent("tp2")


def test_ranks_that_copy_a_key_head_sum_its_gradients() -> None:
    found = sent("tp4")  # 2 key and value heads: pairs of ranks hold one, 2 × 8 numbers in k and in v
    assert found["kv_copies", "all-reduce"] == (1, 2 * 2 * 16 * 4)


def test_a_ring_sends_keys_and_values_on_and_their_gradients_in_fp32() -> None:
    block = 2 * 128 * 2 * 2  # 128 tokens, 2 heads of 2
    assert sent("cp2")["context", "send"] == (4 * 2 * 3, 4 * 2 * 3 * block * 4)
    half = replace(FP32, activation=2, table=2)
    assert sent("cp2", options=half)["context", "send"] == (4 * 2 * 3, 4 * 2 * block * (2 + 2 + 4))
    # Its gradients are summed over context ranks too.
    assert sent("cp2")["data", "all-reduce"] == (0, 4 * 1704)


def test_allgather_and_ulysses_send_by_their_own_formulas() -> None:
    whole = 2 * 256 * 2 * 2 * 4
    found = sent("cp2:allgather")
    assert found["context", "all-gather"] == (4 * 2 * 2, 4 * 2 * 2 * whole / 2)
    assert found["context", "reduce-scatter"] == (4 * 2, 4 * 2 * whole / 2)
    # 128 tokens: 4 query and 2 + 2 key and value heads of 2 there, 4 back; the same backward.
    trade = 128 * (4 + 2 + 2 + 4) * 2 * 4
    assert sent("cp2:ulysses")["context", "all-to-all"] == (4 * 2 * 4, 4 * 2 * 2 * trade / 2)


def test_tokens_travel_to_their_experts_and_back() -> None:
    rows = wire(MIXTURE, Workload(256, 4), parse_layout("ddp2 ep2"), 0, FP32)
    visits = 256 * 2 * 8 * 4  # bytes of 256 tokens, two experts each
    tokens = next(row for row in rows if row.approximate)
    assert tokens == WireRow("expert", "all-to-all", 2 * 2 * 4, 2 * 2 * 4 * visits / 2, approximate=True)
    counts = next(row for row in rows if row.collective == "all-to-all" and not row.approximate)
    assert counts == WireRow("expert", "all-to-all", 2 * 2, 2 * 2 * 4 * 8 / 2, small=True)


def test_experts_gradients_are_summed_over_their_own_replicas() -> None:
    dense = 2 * (BLOCK - 384 + 4 * 8) + EDGES  # a router in place of the feed-forward part
    assert sent("ddp2 ep2", MIXTURE)["data", "all-reduce"] == (0, 4 * dense)
    assert ("expert_data", "all-reduce") not in sent("ddp2 ep2", MIXTURE)
    experts = 2 * 2 * 384  # 2 layers, 2 experts
    assert sent("ddp4 ep2", MIXTURE)["expert_data", "all-reduce"] == (1, 4 * experts)
    found = sent("zero1:4 ep2", MIXTURE)
    assert found["expert_shard", "all-gather"] == (2, 4 * experts / 2)
    assert found["shard", "all-gather"] == (3, 3 / 4 * 4 * dense)


def test_counts_of_the_balance_loss_are_summed_over_the_pieces_of_a_sequence() -> None:
    found = sent("cp2", MIXTURE, options=replace(FP32, balance=True))
    assert found["sequence", "all-reduce"] == (4 * 2, 4 * 2 * 4 * 8)


def test_a_pipeline_sends_hidden_states_one_way_and_gradients_the_other() -> None:
    deep = replace(MODEL, layers=4)
    for rank in (0, 1):
        assert sent("pp2:1f1b", deep, rank=rank)["pipeline", "send"] == (4, 4 * HIDDEN)
        # Stages 0 and 2, 1 and 3: three borders each.
        assert sent("pp2:interleaved1f1b:2", deep, rank=rank)["pipeline", "send"] == (12, 12 * HIDDEN)
        # A V: stages 0 and 3, 1 and 2; from 1 to 2 nothing travels.
        assert sent("pp2:zbvzerobubble", deep, rank=rank)["pipeline", "send"] == (8, 8 * HIDDEN)
    assert sent("tp2 pp2:1f1b", deep)["pipeline", "send"] == (4, 4 * HIDDEN / 2)
    assert sent("pp4:1f1b", deep, rank=1)["pipeline", "send"] == (8, 8 * HIDDEN)


def test_a_tied_table_is_summed_between_the_ends_of_a_pipeline() -> None:
    tied = replace(MODEL, layers=4, tied_embeddings=True)
    for rank in (0, 3):
        assert sent("pp4:1f1b", tied, rank=rank)["pipeline", "all-reduce"] == (1, 32 * 8 * 4)
    assert ("pipeline", "all-reduce") not in sent("pp4:1f1b", tied, rank=1)
    assert ("pipeline", "all-reduce") not in sent("pp2:zbvzerobubble", tied)
    assert sent("zero1:2 pp2:1f1b", tied)["pipeline", "all-reduce"] == (1, 32 * 8 * 4 / 2)


def test_in_a_pipeline_shards_are_gathered_and_scattered_once() -> None:
    deep = replace(MODEL, layers=4)
    first = 2 * BLOCK + 256
    for text in ("fsdp2 pp2:1f1b", "zero2:2 pp2:1f1b"):
        found = sent(text, deep)
        assert found["shard", "all-gather"] == found["shard", "reduce-scatter"] == (3, 4 * first / 2)
    # Of four stages a rank PyTorch keeps three: it gathers some of them anew.
    many = sent("fsdp2 pp2:interleaved1f1b:4", replace(MODEL, layers=8))
    assert many["shard", "all-gather"][0] > many["shard", "reduce-scatter"][0]


def test_sums_after_backward_come_in_buckets() -> None:
    deep = replace(MODEL, layers=4)
    assert sent("ddp2 pp2:1f1b", deep)["data", "all-reduce"] == (1, 4 * (2 * BLOCK + 256))
    # Buckets of 1,024 bytes: the table alone, 40 + 64, 2 · 32 + 64 + 8, 128 and 128 a layer …
    count, size = sent("ddp2 pp2:1f1b", deep, options=replace(FP32, bucket=1024))["data", "all-reduce"]
    assert size == 4 * (2 * BLOCK + 256)
    assert count == 6  # 256 | 8 64 32 32 64 8 | 128 128 | 128 8 64 32 | 32 64 8 128 | 128 128


def test_an_uneven_vocabulary_is_padded_where_ddp_sends_it_and_not_after() -> None:
    uneven = replace(MODEL, vocab=31, tied_embeddings=True, layers=4)
    for rank, rows in ((0, 16), (4, 16), (1, 15)):
        found = sent("ddp2 tp2 pp2:1f1b", uneven, rank=rank)
        assert found["pipeline", "all-reduce"] == (1, rows * 8 * 4)
    ranks = [sent("ddp2 tp2", uneven, rank=rank)["data", "all-reduce"] for rank in (0, 1)]
    assert ranks[0] == ranks[1]


def test_axes_of_a_layout_hold_the_ranks_that_the_mesh_says() -> None:
    layout = parse_layout("hsdp2x2 tp2 pp2:1f1b")
    assert axis_ranks(layout, "tensor", 5) == (4, 5)
    assert axis_ranks(layout, "shard", 5) == (5, 7)
    assert axis_ranks(layout, "replicate", 5) == (1, 5)
    assert axis_ranks(layout, "data", 5) == (1, 3, 5, 7)
    assert axis_ranks(layout, "pipeline", 5) == (5, 13)
    spread = parse_layout("hsdp2x2 tp2 ep4")
    assert axis_ranks(spread, "expert", 5) == (4, 5, 6, 7)
    assert axis_ranks(spread, "expert_data", 5) == (1, 5)
    assert axis_ranks(spread, "expert_shard", 5) == (5,)
    assert axis_ranks(spread, "expert_replicate", 5) == (1, 5)


def test_recorded_and_expected_rows_meet_on_axes_of_the_same_ranks() -> None:
    layout = parse_layout("fsdp4")
    assert shared_axis(MODEL, layout, "data") == shared_axis(MODEL, layout, "world") == "shard"
    expected = wire(MODEL, Workload(256, 4), layout, 0, FP32)
    renamed = [replace(row, axis="data") for row in expected]
    assert all(line.agrees for line in compare(MODEL, layout, renamed, expected))
    assert {line.collective for line in compare(MODEL, layout, renamed, expected)} == {"all-gather", "reduce-scatter"}
    lacking = compare(MODEL, layout, [row for row in expected if row.collective != "all-gather"], expected)
    assert [line.agrees for line in lacking] == [False, True]
    doubled = compare(MODEL, layout, [*expected, WireRow("tensor", "broadcast", 1, 4096.0)], expected)
    assert [line.agrees for line in doubled] == [True, True, False]
    assert (doubled[-1].bytes, doubled[-1].expected_bytes) == (4096.0, 0.0)


def test_what_depends_on_the_data_is_not_judged() -> None:
    layout = parse_layout("ddp2 ep2")
    expected = wire(MIXTURE, Workload(256, 4), layout, 0, FP32)
    recorded = [replace(row, bytes=row.bytes * (0.9 if row.approximate else 1)) for row in expected]
    lines = compare(MIXTURE, layout, recorded, expected)
    assert [line.approximate for line in lines if line.bytes != line.expected_bytes] == [True]
    assert all(line.agrees for line in lines)


def test_layers_of_stages_are_those_of_the_runtime() -> None:
    from meshwright.modes import stages

    for text in ("pp2", "pp3", "pp4", "pp4:interleaved1f1b:2", "pp2:zbvzerobubble", "pp3 stages:2-5-1"):
        for layers in range(8, 20) if "stages" not in text else (8,):
            layout = parse_layout(text)
            assert layers_of_stages(layers, layout) == stages.layers_of_stages(layers, layout)


def test_what_the_runtime_does_not_do_is_refused() -> None:
    with pytest.raises(LayoutError, match="do not divide"):
        wire(MODEL, Workload(256, 3), parse_layout("ddp2"), 0)
    with pytest.raises(LayoutError, match="has no rank 2"):
        wire(MODEL, Workload(256, 4), parse_layout("ddp2"), 2)
    with pytest.raises(LayoutError, match="cannot fill"):
        wire(MODEL, Workload(256, 4), parse_layout("pp4"), 0)
    with pytest.raises(WorkloadError, match="trains all parameters"):
        wire(MODEL, Workload(256, 4, tuning=Tuning("lora")), parse_layout("ddp2"), 0)
