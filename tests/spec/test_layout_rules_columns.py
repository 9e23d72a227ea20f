"""Rules over columns say what the rules of one layout say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.spec.columns import LayoutColumns, columns_of, stack
from meshwright.spec.errors import LayoutError
from meshwright.spec.layout import SCHEDULES, Layout
from meshwright.spec.model import Model
from meshwright.spec.rules import RUNTIMES, check_layout, legal_mask, violations
from meshwright.spec.workload import Tuning, Workload

from .jobs import GPT2, LLAMA_70B, MIXTRAL, cluster, work
from .layouts import asked

models = st.sampled_from([GPT2, MIXTRAL, LLAMA_70B])
workloads = st.builds(
    work,
    seq_len=st.sampled_from([1024, 1000, 4096]),
    global_batch=st.sampled_from([4, 9, 48]),
    precision=st.sampled_from(["bf16", "fp16", "fp8"]),
    implementation=st.sampled_from(["fused", "compiled"]),
    tuning=st.sampled_from(
        [Tuning(), Tuning("lora", lora_targets=("gate",)), Tuning("frozen", frozen_layers=12)],
    ),
)
runtimes = st.sampled_from([None, *RUNTIMES])


@given(
    st.lists(asked(), min_size=1, max_size=30),
    models,
    st.sampled_from([8, 4096]),
    workloads,
    runtimes,
    st.booleans(),
)
@settings(deadline=None)
def test_a_row_is_legal_exactly_when_its_layout_is(
    layouts: list[Layout],
    model: Model,
    devices: int,
    workload: Workload,
    runtime: str | None,
    spare: bool,
) -> None:
    job = (model, cluster(devices), workload)
    mask, reasons = legal_mask(*job, stack(layouts), runtime=runtime, spare=spare)
    first = {index: reason for reason, rows in reasons.items() for index in np.flatnonzero(rows)}
    for index, layout in enumerate(layouts):
        found = violations(*job, layout, spare=spare)
        fatal = [v for v in found if (v.refused_by == RUNTIMES if runtime is None else runtime in v.refused_by)]
        assert mask[index] == (not fatal)
        assert first.get(index) == (fatal[0].reason if fatal else None)
        if fatal:
            with pytest.raises(LayoutError) as caught:
                check_layout(*job, layout, runtime=runtime, spare=spare)
            assert str(caught.value).startswith(fatal[0].message)
        else:
            check_layout(*job, layout, runtime=runtime, spare=spare)


@given(st.lists(asked(), min_size=1, max_size=30), models)
def test_every_rejected_row_has_one_reason_and_no_legal_row_has_any(layouts: list[Layout], model: Model) -> None:
    mask, reasons = legal_mask(model, cluster(8), work(1024, 48), stack(layouts))
    assert np.array_equal(np.sum([np.zeros(len(layouts)), *reasons.values()], axis=0), ~mask)


def test_a_column_that_all_rows_share_may_be_one_number() -> None:
    one = columns_of(Layout(shard=8, zero_stage=3))
    tensor = np.array([1, 2, 3, 4, 5, 8, 16])
    columns = LayoutColumns(**{name: getattr(one, name) for name in one.__slots__} | {"tensor": tensor})
    mask, reasons = legal_mask(LLAMA_70B, cluster(128), work(), columns, spare=True)
    assert tensor[mask].tolist() == [1, 2, 4, 8, 16]
    assert [tensor[rows].tolist() for rows in reasons.values()] == [[3, 5]]


def test_no_rows_are_no_rows() -> None:
    mask, reasons = legal_mask(LLAMA_70B, cluster(8), work(), stack([]))
    assert mask.shape == (0,)
    assert reasons == {}


def test_huge_degrees_are_rejected_before_they_overflow() -> None:
    columns = stack([Layout(replicate=10**6, tensor=10**6, pipeline=10**6, context=10**6)])
    mask, reasons = legal_mask(LLAMA_70B, cluster(8), work(), columns)
    assert not mask[0]
    assert list(reasons) == ["more than 10,000,000 devices"]


@pytest.mark.parametrize(
    ("schedule", "stages", "micro_batches", "taken"),
    [
        # What the classes of torch.distributed.pipelining 2.13.0 take on 4 ranks, from their constructors.
        ("gpipe", 1, (1, 2, 3, 9), True),
        ("1f1b", 1, (4, 5, 9), True),
        ("1f1b", 1, (1, 2, 3), False),
        ("interleaved1f1b", 2, (2, 3, 4, 6, 8, 10), True),
        ("interleaved1f1b", 2, (9, 11, 13), False),
        ("loopedbfs", 3, (1, 2, 9), True),
        ("interleavedzerobubble", 1, (2, 4, 8), True),
        ("interleavedzerobubble", 2, (9,), False),
        ("zbvzerobubble", 2, (1, 3, 9), True),
        ("dualpipev", 2, (8, 9, 10), True),
        ("dualpipev", 2, (3, 4, 6), False),
    ],
)
def test_pytorch_takes_these_micro_batch_counts(
    schedule: str, stages: int, micro_batches: tuple[int, ...], taken: bool
) -> None:
    layout = Layout(pipeline=4, schedule=schedule, virtual_stages=stages)
    for count in micro_batches:
        mask, _ = legal_mask(LLAMA_70B, cluster(4), work(global_batch=count), stack([layout]), runtime="pytorch")
        assert mask[0] == taken
    assert schedule in SCHEDULES
