"""The space holds every layout once, and nothing that its description leaves out."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.plan.space import axes, chunks, micro_batches, shapes, shardings, variants, virtual_stages
from meshwright.spec.layout import CONTEXT_KINDS, RECOMPUTE, SCHEDULES, V_SCHEDULES, Layout
from meshwright.spec.model import Model
from meshwright.spec.notation import format_layout, parse_layout
from meshwright.spec.rules import check_shape
from meshwright.spec.workload import Workload
from tests.plan.jobs import DENSE, MIXTURE, cluster


def layouts(model: Model, devices: int, batch: int = 8, seq_len: int = 1024, offload: bool = False) -> list[Layout]:
    """The space row by row."""
    workload, nodes = Workload(seq_len, batch), cluster(devices, 2 if devices % 2 == 0 else devices)
    degrees = axes(model, nodes, workload, devices)
    wanted = shapes(degrees, nodes, devices, offload=offload)
    pieces = list(chunks(model, workload, wanted))
    return [piece.row(index) for piece in pieces for index in range(piece.micro_batch.size)]


@settings(max_examples=10, deadline=None)
@given(
    devices=st.sampled_from([1, 2, 3, 4, 6, 8]),
    batch=st.sampled_from([1, 6, 8]),
    model=st.sampled_from([DENSE, MIXTURE, replace(DENSE, layers=7, heads=6, kv_heads=3)]),
    offload=st.booleans(),
    random=st.randoms(use_true_random=False),
)
def test_each_layout_is_there_once_uses_all_devices_and_is_read_back(
    devices: int, batch: int, model: Model, offload: bool, random: Random
) -> None:
    found = layouts(model, devices, batch, offload=offload)
    assert len(set(found)) == len(found)
    assert {layout.devices for layout in found} == {devices}
    for layout in random.sample(found, k=min(20, len(found))):
        check_shape(layout)
        assert parse_layout(format_layout(layout)) == layout


def test_what_has_no_effect_is_not_varied() -> None:
    for layout in layouts(MIXTURE, 8):
        if layout.tensor == 1:
            assert layout.sequence_parallel
        if layout.context == 1:
            assert layout.context_kind == CONTEXT_KINDS[0]
        if layout.pipeline == 1:
            assert (layout.schedule, layout.virtual_stages) == ("1f1b", 1)
        if layout.zero_stage == 0:
            assert layout.shard == 1
        else:
            assert layout.shard * layout.context > 1


def test_every_value_of_every_axis_is_there() -> None:
    found = layouts(MIXTURE, 8)
    assert {layout.zero_stage for layout in found} == {0, 1, 2, 3}
    assert {layout.schedule for layout in found} == set(SCHEDULES)
    assert {layout.recompute for layout in found} == set(RECOMPUTE)
    assert {layout.context_kind for layout in found} == set(CONTEXT_KINDS)
    assert {layout.sequence_parallel for layout in found} == {True, False}
    # Tensor groups span two nodes of two devices at most, a pipeline has no more ranks than the model has layers.
    assert {layout.tensor for layout in found} == {1, 2, 4}
    assert {layout.pipeline for layout in found} == {1, 2, 4}
    assert {layout.expert for layout in found} == {1, 2, 4}
    assert {layout.micro_batch for layout in found} == {1, 2, 4, 8}
    assert any(layout.replicate > 1 and layout.shard > 1 for layout in found)
    assert not any(layout.offload or layout.quantized or layout.secondary_shard for layout in found)


def test_offload_is_there_when_asked_even_on_one_device() -> None:
    found = {layout.offload for layout in layouts(DENSE, 1, offload=True)}
    assert found == {(), ("optimizer",), ("optimizer", "parameters")}


def test_stages_a_rank_are_the_fewest_for_each_number_of_layers_a_stage() -> None:
    # 12 layers on 2 ranks: 6 a rank, so 6, 3, 2 or 1 layers a stage.
    assert virtual_stages("interleaved1f1b", 12, 2) == (2, 3, 6)
    assert virtual_stages("interleavedzerobubble", 12, 2) == (1, 2, 3, 6)
    assert virtual_stages("1f1b", 12, 2) == (1,)
    assert virtual_stages("gpipe", 12, 1) == ()
    for schedule in V_SCHEDULES:
        assert virtual_stages(schedule, 12, 2) == (2,)
        assert virtual_stages(schedule, 12, 12) == ()


@given(layers=st.integers(1, 200), pipeline=st.integers(1, 64))
def test_more_stages_than_layers_are_never_tried(layers: int, pipeline: int) -> None:
    for schedule in SCHEDULES:
        if pipeline <= layers:
            assert all(v * pipeline <= layers for v in virtual_stages(schedule, layers, pipeline))


def test_micro_batches_use_the_batch_up_and_stop_growing() -> None:
    assert micro_batches(Workload(1024, 24), data=2, context=1) == (1, 2, 3, 4, 6, 12)
    assert micro_batches(Workload(1024, 24), data=5, context=1) == (1,)  # for the rules to refuse
    assert micro_batches(Workload(32768, 24), data=2, context=1) == (1, 2)
    assert micro_batches(Workload(131072, 24), data=2, context=1) == (1,)


@given(data=st.integers(1, 512), in_node=st.sampled_from([1, 2, 4, 8, 72]), context=st.sampled_from([1, 2]))
def test_shards_and_replicas_make_up_the_data_ranks(data: int, in_node: int, context: int) -> None:
    ways = shardings(data, context, in_node, offload=False)
    assert len(set(ways)) == len(ways)
    assert all(replicate * shard == data for replicate, shard, *_ in ways)
    assert (data, 1, 0, 0, 0) in ways
    for stage in (1, 2, 3) if data > 1 else ():
        assert (1, data, stage, 0, 0) in ways


@pytest.mark.parametrize("model", [DENSE, MIXTURE])
def test_variants_counts_the_layouts_of_a_sharding(model: Model) -> None:
    workload, nodes = Workload(1024, 8), cluster(8, 2)
    wanted = shapes(axes(model, nodes, workload, 8), nodes, 8)
    told = sum(variants(model, workload, shape) * shape.ways for shape in wanted)
    assert told == len(layouts(model, 8))
