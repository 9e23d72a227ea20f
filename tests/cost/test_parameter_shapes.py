"""Names and shapes of parameters are those of the Decoder itself."""

from __future__ import annotations

import pytest

from meshwright.cost.parameter_shapes import parameter_shapes
from meshwright.cost.parameters import parameters
from meshwright.spec.errors import ModelError
from meshwright.spec.model_config import load_model
from meshwright.train.models.build import build_model, load_architecture, preset_names

REAL = (
    "llama-3-8b", "llama-3.2-1b", "gpt2-xl", "mixtral-8x7b", "qwen2.5-7b", "qwen3-8b", "qwen3-30b-a3b", "deepseek-v3",
    "deepseek-v2-lite", "kimi-k2", "moonlight-16b-a3b",
)  # fmt: skip


@pytest.mark.parametrize("name", [*preset_names(), *REAL])
def test_shapes_are_those_of_the_decoder_in_its_order(name: str) -> None:
    architecture = load_architecture(name)
    decoder = build_model(architecture, device="meta")
    found = [(one.name, one.shape) for one in parameter_shapes(architecture.model)]
    assert found == [(name, tuple(p.shape)) for name, p in decoder.named_parameters()]
    buffers = sum(buffer.numel() for buffer in decoder.buffers())
    assert sum(one.numel for one in parameter_shapes(architecture.model)) + buffers == (
        parameters(architecture.model).total
    )


@pytest.mark.parametrize("name", ["gpt-oss-20b", "gpt-j-6b", "bert-base"])
def test_a_model_that_the_decoder_does_not_have_is_refused(name: str) -> None:
    with pytest.raises(ModelError, match="parameters that the decoder does not have"):
        parameter_shapes(load_model(name))
