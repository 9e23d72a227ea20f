"""A ratio has the name of what it is in every run, and no other."""

from __future__ import annotations

import pytest

from meshwright.check.case import Case
from meshwright.check.factors import name_factor
from meshwright.spec.notation import parse_layout

CASE = Case(global_batch=16, seq_len=64)


def named(ratios: list[float], *layouts: str, experts: bool = False) -> str:
    return name_factor(ratios, [parse_layout(text) for text in layouts], CASE, 700, experts=experts)


@pytest.mark.parametrize(
    ("ratio", "layout", "name"),
    [
        (2.0, "tp2 mbs16", "tensor degree"),
        (0.5, "tp2 mbs16", "1 / tensor degree"),
        (4.0, "fsdp4 mbs4", "data-parallel ranks or sequences a micro-batch"),
        (4.0, "cp4 mbs16", "context degree"),
        (2.0, "hsdp2x4 mbs2", "replicas or sequences a micro-batch"),
        (4.0, "hsdp2x4 mbs2", "shards"),
        (1 / 8, "hsdp2x4 mbs2", "1 / data-parallel ranks"),
        (6.0, "fsdp2 tp3 mbs8", "world size"),
        (6.0, "fsdp2 cp3 mbs8", "data × context ranks"),
        (700.0, "ddp2 mbs8", "target tokens of the step"),
        (1024.0, "ddp2 mbs8", "tokens of the step"),
        (1.7, "fsdp2 tp2 mbs8", ""),
        (2.001, "tp2 mbs16", ""),
        (0.0, "tp2 mbs16", ""),
        (-2.0, "tp2 mbs16", ""),
    ],
)
def test_a_ratio_is_named_by_what_has_its_value(ratio: float, layout: str, name: str) -> None:
    assert named([ratio], layout) == name


def test_runs_with_other_micro_batches_tell_names_apart() -> None:
    one_and_two = ("ddp2 mbs8", "ddp2 mbs4")
    assert named([2.0, 2.0], *one_and_two) == "data-parallel ranks"
    assert named([1.0, 2.0], *one_and_two) == "micro-batches"
    assert named([1.0, 0.5], *one_and_two) == "1 / micro-batches"
    assert named([8.0, 4.0], *one_and_two) == "sequences a micro-batch"
    assert named([2.0, 4.0], *one_and_two) == "data-parallel ranks × micro-batches"
    assert named([2.0, 3.0], *one_and_two) == ""


def test_experts_alone_are_off_by_the_expert_degree() -> None:
    assert named([2.0], "ddp2 ep2 mbs8") == "data-parallel ranks or expert degree"
    assert named([2.0], "ddp2 ep2 mbs8", experts=True) == "expert degree"
    assert named([0.5], "ddp2 ep2 mbs8", experts=True) == "1 / expert degree"
    assert named([4.0], "ddp4 ep2 mbs4", experts=True) == "data-parallel ranks or sequences a micro-batch"
