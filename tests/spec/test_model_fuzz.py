"""Arbitrary JSON and mutated configurations: a Model or one clear ModelError, nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.catalog.model_files import model_file, model_names
from meshwright.cost.parameters import layer_parameters, lora_parameters, matmul_parameters, parameters
from meshwright.spec.errors import ModelError
from meshwright.spec.families import FAMILIES, REFUSED
from meshwright.spec.model import Model
from meshwright.spec.model_config import load_model, read_config

REAL = [json.loads(model_file(name).read_text(encoding="utf-8")) for name in model_names()]
KEYS = sorted({key for config in REAL for key in config} | {"text_config", "is_encoder_decoder", "num_experts"})

patient = settings(deadline=None)
"""No time limit an example: the machine may be busy."""

NUMBERS = st.integers() | st.floats() | st.integers(-2, 300) | st.sampled_from([2**63, 10**400, -1, 0])
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=20) | st.sampled_from([*FAMILIES, *REFUSED])
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4))


def one_line(refusal: ModelError) -> bool:
    """Whether a refusal reads as one short message."""
    message = str(refusal)
    return "\n" not in message and "Traceback" not in message and len(message) < 700


def read(config: Any) -> Model | None:
    """The model, or None where it is refused in one line that starts with its name."""
    model, refusal = None, None
    try:
        model = read_config(config, "fuzz")
    except ModelError as error:
        refusal = error
    assert refusal is None or (one_line(refusal) and str(refusal).startswith("fuzz"))
    return model


def load(text: str) -> ModelError | None:
    """The refusal of a name or path, if it is refused."""
    try:
        load_model(text)
    except ModelError as refusal:
        return refusal
    return None


def check_counts(model: Model) -> None:
    counts = parameters(model)
    layers = [layer_parameters(model, i).total for i in range(min(model.layers, 200))]
    assert counts.total >= counts.active > 0
    assert counts.total > sum(layers)
    assert matmul_parameters(model) > 0
    assert lora_parameters(model, 1, ["q", "down"]) > 0


@patient
@given(JSON)
def test_arbitrary_json_is_read_or_refused_in_one_line(config: Any) -> None:
    model = read(config)
    assert model is None or model.layers > 0


@patient
@given(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=8))
def test_known_keys_with_arbitrary_values_are_read_or_refused_in_one_line(config: dict[str, Any]) -> None:
    model = read(config)
    assert model is None or parameters(model).total > 0


@patient
@given(st.sampled_from(REAL), st.dictionaries(st.sampled_from(KEYS), JSON, max_size=2), st.sampled_from(["", *KEYS]))
def test_a_mutated_configuration_is_counted_or_refused_in_one_line(
    config: dict[str, Any], changed: dict[str, Any], dropped: str
) -> None:
    model = read({key: value for key, value in {**config, **changed}.items() if key != dropped})
    if model is not None:
        check_counts(model)


@patient
@given(st.sampled_from(REAL), st.dictionaries(st.sampled_from(KEYS), st.integers(1, 64), max_size=4))
def test_other_small_numbers_are_counted_or_refused_in_one_line(
    config: dict[str, Any], changed: dict[str, int]
) -> None:
    model = read({**config, **changed})
    if model is not None:
        check_counts(model)


@patient
@given(st.text(max_size=60))
def test_any_text_names_a_model_or_is_refused_in_one_line(text: str) -> None:
    refusal = load(text)
    assert refusal is None or one_line(refusal)


@patient
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_with_the_name_of_their_file(content: bytes) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "config.json"
        file.write_bytes(content)
        refusal = load(folder)
    assert refusal is not None
    assert one_line(refusal)
    assert str(file) in str(refusal)
