"""The configuration's defaults are those of what it configures."""

from __future__ import annotations

from dataclasses import fields

import pytest

from meshwright.modes.options import Options
from meshwright.spec.cluster_catalog import catalogue_name
from meshwright.train.config.keys import keys
from meshwright.train.config.models import model_to_train, small_names
from meshwright.train.config.tree import ParallelSection
from meshwright.train.models.build import load_architecture, preset_names


def test_tuning_defaults_are_those_of_the_modes() -> None:
    options, section = Options(), ParallelSection()
    shared = {field.name for field in fields(Options)} & {field.name for field in fields(ParallelSection)}
    assert {"bucket_mb", "static_graph", "find_unused", "prefetch", "rate_limit"} <= shared
    for name in shared:
        assert getattr(options, name) == getattr(section, name)


def test_the_numbers_of_a_model_are_those_that_are_built() -> None:
    assert small_names() == preset_names()
    for name in (*small_names(), "gpt2", "llama-3.2-1b"):
        assert model_to_train(name) == load_architecture(name).model


def test_every_key_has_a_help_text() -> None:
    silent = [path for path, key in keys().items() if not key.doc and key.section in ("", "train", "parallel")]
    assert silent == []


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100-40GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIe-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA B200", "B200"),
        ("Tesla V100-SXM2-32GB", "V100-32GB"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("NVIDIA L40S", "L40S"),
        ("AMD Instinct MI300X", "MI300X"),
        ("NVIDIA RTX A6000", None),
        ("NVIDIA H100 NVL", None),
        ("Tesla T4", None),
    ],
)
def test_a_driver_name_is_a_device_of_the_catalogue_or_none(driver: str, name: str | None) -> None:
    assert catalogue_name(driver) == name
