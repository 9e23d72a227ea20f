"""Activations by Korthikanti et al. 2022 (arXiv:2205.05198), equation by equation, and states by ZeRO, as laws."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.cost import operations as ops
from meshwright.cost.memory import layer_activations
from meshwright.cost.pipeline import in_flight
from meshwright.cost.shares import RankParameters
from meshwright.cost.states import state_shares
from meshwright.spec.columns import columns_of
from meshwright.spec.layout import RECOMPUTE, SCHEDULES, Layout
from meshwright.spec.model import Model
from meshwright.spec.optimizer import state_bytes
from meshwright.spec.workload import Workload, make_workload

# Table 3 of the paper: 22B, 175B, 530B and 1T; heads, hidden, layers; sequence 2048, vocabulary 51,200.
SIZES = {"22b": (64, 6144, 48), "175b": (96, 12288, 96), "530b": (128, 20480, 105), "1t": (160, 25600, 128)}
SEQUENCE, VOCABULARY = 2048, 51_200
NONE, SELECTIVE, FULL = (RECOMPUTE.index(kind) for kind in ("none", "selective", "full"))


def dense(parameters: float) -> RankParameters:
    return RankParameters(parameters, 0.0)


def megatron(name: str) -> Model:
    heads, hidden, layers = SIZES[name]
    return Model(
        name, layers, hidden, heads, heads, hidden // heads, 4 * hidden, VOCABULARY, SEQUENCE,
        gated_mlp=False, norm="layernorm", positions="learned",
    )  # fmt: skip


def work(**options: bool) -> Workload:
    """16 bit, dropout, scores through memory: what the paper counts."""
    return make_workload(SEQUENCE, 64, **{"dropout": True, "fused_attention": False, **options})


def kept(name: str, kind: int, batch: int = 1, **layout: object) -> float:
    columns = columns_of(Layout(micro_batch=batch, **layout))  # type: ignore[arg-type]
    return float(layer_activations(megatron(name), work(), columns, kind))


def sbh(name: str, batch: int = 1) -> float:
    return SEQUENCE * batch * SIZES[name][1]


def score_term(name: str) -> float:
    """5as/h."""
    heads, hidden, _ = SIZES[name]
    return 5 * heads * SEQUENCE / hidden


EACH = pytest.mark.parametrize("name", SIZES)


@EACH
@pytest.mark.parametrize("batch", [1, 4])
def test_equation_1_a_layer_keeps_sbh_34_plus_5as_over_h(name: str, batch: int) -> None:
    assert kept(name, NONE, batch) == pytest.approx(sbh(name, batch) * (34 + score_term(name)))


@EACH
def test_equation_2_tensor_parallelism_leaves_10_undivided(name: str) -> None:
    by_hand = sbh(name) * (10 + 24 / 8 + score_term(name) / 8)
    assert kept(name, NONE, tensor=8, sequence_parallel=False) == pytest.approx(by_hand)


@EACH
def test_equation_4_sequence_parallelism_divides_everything(name: str) -> None:
    assert kept(name, NONE, tensor=8) == pytest.approx(sbh(name) / 8 * (34 + score_term(name)))


@pytest.mark.parametrize(("name", "stages"), [("175b", 8), ("530b", 35), ("1t", 64)])
def test_equation_5_the_first_stage_keeps_all_layers_worth_whatever_the_number_of_stages(
    name: str, stages: int
) -> None:
    layers = SIZES[name][2]
    flying = float(in_flight(SCHEDULES.index("1f1b"), stages, 8 * stages, 1, 0))
    whole = flying * layers / stages * kept(name, NONE, tensor=8)
    assert whole == pytest.approx(sbh(name) * layers / 8 * (34 + score_term(name)))


@pytest.mark.parametrize(("stages", "virtual"), [(8, 3), (35, 3)])
def test_interleaving_keeps_1_plus_p_minus_1_over_pm_times_equation_5(stages: int, virtual: int) -> None:
    flying = float(in_flight(SCHEDULES.index("interleaved1f1b"), stages, 8 * stages, virtual, 0))
    assert flying / stages == pytest.approx(1 + (stages - 1) / (stages * virtual))


@EACH
def test_equation_6_selective_recomputation_keeps_34sbh_over_t(name: str) -> None:
    assert kept(name, SELECTIVE, tensor=8) == pytest.approx(34 * sbh(name) / 8)


@EACH
def test_full_recomputation_keeps_a_layer_s_input(name: str) -> None:
    assert kept(name, FULL) == 2 * sbh(name)


@EACH
def test_embedding_and_output_layer_keep_what_section_4_3_counts(name: str) -> None:
    """A dropout mask sbh/t behind the embedding; 4sbh/t (1 + v/h) for the last norm, the head and fp32 logits."""
    z = ops.sizes(work(), columns_of(Layout(tensor=8)))
    embedding = sum(float(o.saved) for o in ops.embedding_block(megatron(name), work(), z))
    head = sum(float(o.saved) for o in ops.head_block(megatron(name), work(), z))
    assert embedding == sbh(name) / 8
    assert head == pytest.approx(4 * sbh(name) / 8 * (1 + VOCABULARY / SIZES[name][1]))


# Section 5: 5as/h is 80 for GPT-3 and 64 for MT-NLG; selective recomputation saves 70 and 65 per cent.
@pytest.mark.parametrize(("name", "term", "percent"), [("175b", 80, 70), ("530b", 64, 65)])
def test_selective_recomputation_saves_what_the_paper_says(name: str, term: int, percent: int) -> None:
    assert score_term(name) == term
    assert 100 * (1 - kept(name, SELECTIVE) / kept(name, NONE)) == pytest.approx(percent, abs=0.5)


def test_without_dropout_three_masks_and_the_dropped_scores_are_not_kept() -> None:
    """Of 34 + 5as/h: two masks of one byte, and of the five of the scores only the softmax's two."""
    heads, hidden, _ = SIZES["175b"]
    dry = float(layer_activations(megatron("175b"), work(dropout=False), columns_of(Layout()), NONE))
    assert dry == pytest.approx(sbh("175b") * (32 + 2 * heads * SEQUENCE / hidden))


def test_fused_attention_keeps_row_statistics_in_place_of_scores() -> None:
    """34sbh and 4 bytes for each head and token: the log-sum-exp (arXiv:2205.14135)."""
    fused = float(layer_activations(megatron("175b"), work(fused_attention=True), columns_of(Layout()), NONE))
    assert fused == pytest.approx(34 * sbh("175b") + 4 * SEQUENCE * 96)


def test_grouped_queries_keep_fewer_keys_and_values() -> None:
    """2 bytes x 2 (keys and values) x the missing heads' width."""
    whole = megatron("22b")
    grouped = replace(whole, kv_heads=8)
    columns = columns_of(Layout())
    saved = float(layer_activations(whole, work(), columns, NONE) - layer_activations(grouped, work(), columns, NONE))
    assert saved == 2 * 2 * SEQUENCE * (64 - 8) * 96


layouts = st.builds(
    lambda t, c, b, on: Layout(tensor=2**t, context=2**c, micro_batch=b, sequence_parallel=on),
    st.integers(0, 3), st.integers(0, 3), st.integers(1, 8), st.booleans(),
)  # fmt: skip


@given(layout=layouts, fused=st.booleans(), dropout=st.booleans())
def test_more_recomputation_never_keeps_more(layout: Layout, fused: bool, dropout: bool) -> None:
    options = work(fused_attention=fused, dropout=dropout)
    none, selective, full = (
        float(layer_activations(megatron("22b"), options, columns_of(layout), kind)) for kind in (NONE, SELECTIVE, FULL)
    )
    assert full <= selective <= none


@given(
    parameters=st.floats(1e6, 1e12),
    ranks=st.integers(1, 4096),
    regime=st.sampled_from(["mixed", "mixed-fp32-gradients", "mixed-dual-gradients", "fp32-shards", "pure"]),
)
def test_a_higher_zero_stage_and_more_ranks_never_keep_more(parameters: float, ranks: int, regime: str) -> None:
    per = state_bytes(make_workload(2048, 8, states=regime))

    def held(stage: int, shard: int) -> float:
        layout = columns_of(Layout(shard=shard, zero_stage=stage))
        return float(sum(state_shares(dense(parameters), dense(parameters), per, layout)))

    stages = [held(stage, ranks) for stage in range(4)]
    assert all(later <= earlier * (1 + 1e-12) for earlier, later in pairwise(stages))
    assert all(held(stage, ranks + 1) <= held(stage, ranks) * (1 + 1e-12) for stage in range(4))
    assert held(3, ranks) * ranks == pytest.approx(parameters * per.total)


def test_frozen_parameters_have_neither_gradients_nor_states() -> None:
    per = state_bytes(make_workload(2048, 8))
    parameters, gradients, optimizer = state_shares(dense(1e9), dense(1e7), per, columns_of(Layout()))
    assert (parameters, gradients, optimizer) == pytest.approx((2e9, 0.02e9, 0.12e9))


def test_hybrid_sharding_shares_inside_the_group_only() -> None:
    per = state_bytes(make_workload(2048, 8))
    hybrid = columns_of(Layout(replicate=4, shard=8, zero_stage=3))
    assert sum(state_shares(dense(1e9), dense(1e9), per, hybrid)) == pytest.approx(16e9 / 8)


def test_the_second_copy_of_zero_plus_plus_costs_its_share_of_the_16_bit_weights() -> None:
    per = state_bytes(make_workload(2048, 8))
    plain = state_shares(dense(1e9), dense(1e9), per, columns_of(Layout(shard=64, zero_stage=3)))[0]
    double = state_shares(dense(1e9), dense(1e9), per, columns_of(Layout(shard=64, zero_stage=3, secondary_shard=8)))[0]
    assert float(double - plain) == pytest.approx(2e9 / 8)
