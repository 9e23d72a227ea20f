"""Laws that hold for every layout of every space that is searched; each example is a model with its whole space."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meshwright.cost.memory import INSTANTS, Peak, peak_memory
from meshwright.cost.parameters import parameters
from meshwright.cost.rank_layers import balanced_layers
from meshwright.cost.shares import RankParameters, edge_share, layer_share
from meshwright.cost.states import state_shares
from meshwright.cost.step import StepTime, micro_batch_count, step_time
from meshwright.plan.candidates import as_floats
from meshwright.plan.question import Question
from meshwright.plan.scan import scan
from meshwright.plan.space import axes, chunks, shapes
from meshwright.plan.states import split_by_states
from meshwright.spec.cluster import Cluster
from meshwright.spec.columns import LayoutColumns
from meshwright.spec.layout import RECOMPUTE, SCHEDULES, V_SCHEDULES
from meshwright.spec.model import Experts, Model
from meshwright.spec.optimizer import state_bytes
from meshwright.spec.rules import legal_mask
from meshwright.spec.workload import Workload
from tests.plan.jobs import cluster

laws = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
ROOM = 1 + 1e-9
"""Rounding."""
FILLED = 1 + 1e-5
"""Where launches bound a step, recomputation fills gaps, and what is hidden behind it grows smoothly with it."""


@st.composite
def models(draw: st.DrawFn) -> Model:
    """Small models of every kind that costs differ by."""
    heads = draw(st.sampled_from([4, 8]))
    return Model(
        "drawn",
        layers=draw(st.integers(2, 9)),
        hidden=64 * heads,
        heads=heads,
        kv_heads=draw(st.sampled_from([heads, heads // 2, 1])),
        head_dim=64,
        ffn_hidden=draw(st.sampled_from([512, 2048])),
        vocab=draw(st.sampled_from([1000, 50257])),
        max_positions=8192,
        gated_mlp=draw(st.booleans()),
        tied_embeddings=draw(st.booleans()),
        experts=draw(st.sampled_from([None, Experts(4, 2, 512)])),
    )


@st.composite
def questions(draw: st.DrawFn) -> Question:
    """A model's work on four or eight devices, two or four a node."""
    devices, per_node = draw(st.sampled_from([(4, 2), (8, 4)]))
    workload = Workload(
        seq_len=draw(st.sampled_from([512, 4096])),
        global_batch=draw(st.sampled_from([8, 24])),
        states=draw(st.sampled_from(["mixed", "mixed-fp32-gradients", "fp32-shards"])),
        fused_attention=draw(st.booleans()),
        implementation=draw(st.sampled_from(["eager", "fused", "compiled"])),
    )
    return Question(draw(models()), cluster(devices, per_node), workload, devices)


@dataclass(frozen=True, slots=True)
class Space:
    """Legal layouts of a question; every column an array."""

    question: Question
    columns: LayoutColumns

    def peak(self, **other: Any) -> Peak:
        """Memory, with some fields otherwise."""
        q = self.question
        return peak_memory(q.model, q.cluster, q.workload, replace(self.columns, **other), q.software)

    def step(self, **other: Any) -> StepTime:
        """Time, with some fields otherwise."""
        q = self.question
        return step_time(q.model, q.cluster, q.workload, replace(self.columns, **other), q.software)


def spaces_of(question: Question) -> list[Space]:
    """The legal layouts, chunk by chunk."""
    q = question
    wanted = shapes(axes(q.model, q.cluster, q.workload, q.devices), q.cluster, q.devices)
    found = []
    for piece in chunks(q.model, q.workload, wanted):
        mask, _ = legal_mask(q.model, q.cluster, q.workload, piece)
        if mask.any():
            found.append(Space(q, as_floats(piece.take(mask))))
    return found


@laws
@given(questions())
def test_recomputation_saves_memory_and_costs_time(question: Question) -> None:
    for space in spaces_of(question):
        need = [space.peak(recompute=kind).bytes for kind in range(len(RECOMPUTE))]
        take = [space.step(recompute=kind).total for kind in range(len(RECOMPUTE))]
        assert np.all(need[1] <= need[0] * ROOM)
        assert np.all(need[2] <= need[1] * ROOM)
        assert np.all(take[1] * FILLED >= take[0])
        assert np.all(take[2] * FILLED >= take[1])


@laws
@given(questions())
def test_each_zero_stage_needs_no_more_states_than_the_one_before(question: Question) -> None:
    for space in spaces_of(question):
        states = [np.asarray(sum(held(space.peak(zero_stage=stage), 0))) for stage in range(4)]
        for less, more in zip(states[1:], states[:-1], strict=True):
            assert np.all(less <= more * ROOM)


def held(peak: Peak, position: int) -> tuple[Any, Any, Any]:
    """Parameters, gradients and optimizer states of one pipeline rank."""
    rank = peak.ranks[position]
    return rank.parameters, rank.gradients, rank.optimizer


@laws
@given(questions())
def test_more_data_ranks_never_raise_the_states_of_a_device(question: Question) -> None:
    q = question
    states = state_bytes(q.workload, q.model)
    for space in spaces_of(question):
        share, count = layer_share(q.model, space.columns), balanced_layers(q.model, space.columns)
        whole = RankParameters(share.dense * count.first, share.expert * count.first)
        few = np.asarray(sum(state_shares(whole, whole, states, space.columns)))
        doubled = replace(space.columns, shard=space.columns.shard * 2)
        assert np.all(np.asarray(sum(state_shares(whole, whole, states, doubled))) <= few * ROOM)


@laws
@given(questions())
def test_the_peak_is_the_largest_instant_and_at_least_each_part(question: Question) -> None:
    for space in spaces_of(question):
        peak = space.peak()
        for rank in peak.ranks.values():
            for part in (rank.parameters, rank.gradients, rank.optimizer, rank.activations):
                assert np.all(np.asarray(part) <= peak.bytes * ROOM)
            assert np.all(np.asarray(sum(rank.at(INSTANTS[0]).values())) <= peak.bytes * ROOM)
        assert np.all(peak.reserved >= peak.bytes)


@laws
@given(questions())
def test_the_parts_of_a_step_add_up_and_none_but_the_bubble_is_negative(question: Question) -> None:
    for space in spaces_of(question):
        step = space.step()
        assert np.allclose(np.asarray(sum(step.parts.values())), step.total, rtol=1e-9)
        for name, seconds in step.parts.items():
            if name != "bubble":
                assert np.all(np.asarray(seconds) >= -1e-12), name


@laws
@given(questions())
def test_micro_batches_of_all_ranks_make_up_the_batch(question: Question) -> None:
    for space in spaces_of(question):
        c = space.columns
        m = micro_batch_count(question.workload, c)
        assert np.all(m * c.micro_batch * c.data == question.workload.global_batch)
        assert np.all(m == np.floor(m))


@laws
@given(questions())
def test_every_layer_lies_on_one_rank(question: Question) -> None:
    for space in spaces_of(question):
        c, count = space.columns, balanced_layers(question.model, space.columns)
        placed = np.where(c.pipeline == 1, count.first, count.first + count.last + (c.pipeline - 2) * count.middle)
        spread = np.ceil(question.model.layers / c.pipeline) * c.pipeline - question.model.layers
        # `middle` is the fullest of the ranks between: it speaks for all where at most the two edges have less.
        assert np.all(placed[spread <= 2] == question.model.layers)
        assert np.all(placed >= question.model.layers)


@laws
@given(questions())
def test_parameters_of_all_ranks_are_the_models(question: Question) -> None:
    # One tensor and one expert rank: nothing but a tied table, which the last stage copies, is there twice.
    model, total = question.model, parameters(question.model)
    for space in spaces_of(question):
        c = space.columns
        whole = (c.tensor == 1) & (c.expert == 1) & (model.layers % c.stages == 0)
        share, (first, last) = layer_share(model, c), edge_share(model, c)
        # In a V the first rank has the last stage too, and its one table serves both.
        folded = np.isin(c.schedule, [SCHEDULES.index(name) for name in V_SCHEDULES])
        copied = np.where((c.pipeline > 1) & model.tied_embeddings & ~folded, total.embedding, 0)
        summed = share.total * model.layers + first + last - copied
        assert np.broadcast_to(summed, whole.shape)[whole] == pytest.approx(total.total)


def with_memory(question: Question, memory_bytes: float) -> Question:
    nodes: Cluster = replace(question.cluster, device=replace(question.cluster.device, memory_bytes=memory_bytes))
    return replace(question, cluster=nodes)


@laws
@given(questions(), st.floats(0.1, 1.5), st.floats(1.0, 2.0))
def test_what_fits_fits_with_more_memory(question: Question, some: float, more: float) -> None:
    memory = some * 4 * 2.0**30
    few, many = (scan(with_memory(question, memory * factor)) for factor in (1.0, more))
    assert np.all(few.feasible_by_family <= many.feasible_by_family)
    assert few.searched == many.searched


@laws
@given(questions(), st.floats(0.02, 1.0))
def test_layouts_decided_by_their_states_alone_would_not_have_fitted(question: Question, some: float) -> None:
    q = with_memory(question, some * 4 * 2.0**30)
    wanted = shapes(axes(q.model, q.cluster, q.workload, q.devices), q.cluster, q.devices)
    left, overflow = split_by_states(q, wanted)
    assert sum(shape.ways for shape in wanted) - sum(shape.ways for shape in left) == overflow.layouts.size
    fitting = 0
    for piece in chunks(q.model, q.workload, wanted):
        mask, _ = legal_mask(q.model, q.cluster, q.workload, piece)
        peak = peak_memory(q.model, q.cluster, q.workload, as_floats(piece.take(mask)), q.software)
        fitting += int(np.count_nonzero(peak.reserved <= q.cluster.device.memory_bytes))
    assert scan(q).feasible == fitting
