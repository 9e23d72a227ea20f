"""The Decoder computes what transformers computes from one checkpoint, forward and backward, and writes it back."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
import transformers

from meshwright.train.models.build import build_model, load_architecture
from meshwright.train.models.decoder import Decoder
from meshwright.train.models.safetensors_read import load_weights
from meshwright.train.models.safetensors_write import save_decoder
from tests.train.models.hugging_face import CONFIGS, in_float64, random_model

POSITIONS = {"gpt2": 4000}
"""First position: far from 0, where mistakes in rotary frequencies would not show."""


def loaded(folder: Path) -> Decoder:
    model = build_model(load_architecture(str(folder)), device="cpu", dtype=torch.float64)
    load_weights(model, folder)
    return model


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_and_gradients_equal_those_of_transformers_in_float64(name: str, tmp_path: Path) -> None:
    theirs = random_model(CONFIGS[name])
    theirs.save_pretrained(tmp_path / "weights")
    ours = loaded(tmp_path / "weights")
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, 128, (2, 24), generator=generator)
    positions = POSITIONS.get(name, 3000) + torch.arange(24).expand(2, -1)
    weights = torch.randn(2, 24, 128, generator=generator, dtype=torch.float64) / 24

    with in_float64():
        expected = theirs(input_ids=tokens, position_ids=positions).logits
        (expected * weights).sum().backward()
    logits = ours(tokens, positions)
    (logits.view_as(expected) * weights).sum().backward()

    assert expected.abs().max() > 0.1
    assert (logits.view_as(expected) - expected).abs().max() < 1e-10
    gradients = gradients_of(theirs, tmp_path / "gradients")
    for parameter, value in ours.named_parameters():
        assert value.grad is not None
        scale = gradients[parameter].abs().max()
        assert scale > 0
        assert (value.grad - gradients[parameter]).abs().max() < 1e-10 * max(1.0, scale.item())


def gradients_of(theirs: transformers.PreTrainedModel, folder: Path) -> dict[str, torch.Tensor]:
    """Their gradients under our names: saved as if they were weights."""
    holder = copy.deepcopy(theirs)
    with torch.no_grad():
        for to, parameter in zip(holder.parameters(), theirs.parameters(), strict=True):
            to.copy_(parameter.grad)
    holder.save_pretrained(folder)
    return {name: parameter.detach() for name, parameter in loaded(folder).named_parameters()}


@pytest.mark.parametrize("name", CONFIGS)
def test_transformers_loads_what_is_written(name: str, tmp_path: Path) -> None:
    random_model(CONFIGS[name]).save_pretrained(tmp_path / "theirs")
    save_decoder(tmp_path / "ours", loaded(tmp_path / "theirs"))
    models = []
    for folder in ("theirs", "ours"):
        model, info = transformers.AutoModelForCausalLM.from_pretrained(
            tmp_path / folder, dtype=torch.float64, output_loading_info=True, experts_implementation="eager"
        )
        assert not any(info.values())
        models.append(model)
    for (left, a), (right, b) in zip(models[0].named_parameters(), models[1].named_parameters(), strict=True):
        assert left == right
        assert torch.equal(a, b)
    tokens = torch.arange(40).expand(1, -1)
    first, second = (model(input_ids=tokens, position_ids=tokens + 3000).logits for model in models)
    assert torch.equal(first, second)
