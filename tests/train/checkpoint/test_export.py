"""A checkpoint of any layout becomes a Hugging Face folder with the same numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import nn

from meshwright.modes.parts import Part
from meshwright.train.checkpoint import (
    CheckpointError,
    CheckpointStore,
    TrainState,
    architecture_json,
    export_checkpoint,
)
from meshwright.train.checkpoint.architecture import architecture_from
from meshwright.train.launch.pool import RankPool
from meshwright.train.models.build import build_model, load_architecture, preset_names
from meshwright.train.models.decoder import Decoder
from meshwright.train.models.safetensors_write import save_decoder

from .cut_parts import rows

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def model(name: str) -> Decoder:
    """A decoder with numbers of its own."""
    decoder = build_model(name, device="cpu", dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return decoder


def save_rows(folder: Path, name: str) -> None:
    """Save the model as ranks that each hold some rows of everything."""
    decoder = model(name)
    parts = []
    for key, parameter in decoder.named_parameters():
        ranges = rows(tuple(parameter.shape), dist.get_rank(), dist.get_world_size())
        box = parameter.detach()[tuple(slice(*r) for r in ranges)].clone()
        offset = tuple(start for start, _ in ranges)
        parts.append(
            Part(key, tuple(parameter.shape), offset, tuple(box.shape), nn.Parameter(box), 1, dist.group.WORLD)
        )
    with CheckpointStore(folder, model=architecture_json(decoder.architecture)) as store:
        store.save(TrainState(step=1), parts)


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-gpt2", "tiny-mixtral"])
def test_a_sharded_checkpoint_exports_as_one_process_does(ranks: RankPool, tmp_path: Path, name: str) -> None:
    ranks.run(save_rows, tmp_path / "run", name, world=3)
    export_checkpoint(tmp_path / "run" / "step-00000001", tmp_path / "exported")
    save_decoder(tmp_path / "direct", model(name))
    exported, direct = (load_file(tmp_path / f / "model.safetensors") for f in ("exported", "direct"))
    assert exported.keys() == direct.keys()
    for key, tensor in exported.items():
        assert torch.equal(tensor, direct[key])
    assert (tmp_path / "exported" / "config.json").read_text() == (tmp_path / "direct" / "config.json").read_text()


def test_another_dtype_and_a_model_from_elsewhere_can_be_asked_for(ranks: RankPool, tmp_path: Path) -> None:
    ranks.run(save_rows, tmp_path / "run", "tiny-llama", world=1)
    path = tmp_path / "run" / "step-00000001"
    export_checkpoint(path, tmp_path / "small", dtype=torch.bfloat16)
    tensor = load_file(tmp_path / "small" / "model.safetensors")["model.norm.weight"]
    assert torch.equal(tensor, dict(model("tiny-llama").named_parameters())["norm.weight"].bfloat16())
    with pytest.raises(CheckpointError, match="no parameter"):
        export_checkpoint(path, tmp_path / "other", architecture=load_architecture("tiny-gpt2"))


@pytest.mark.parametrize("name", preset_names())
def test_an_architecture_comes_back_from_the_manifest(name: str) -> None:
    import json

    found = load_architecture(name)
    back = architecture_from(json.loads(json.dumps(architecture_json(found))))
    assert back == found
    assert back.config == found.config


def test_a_checkpoint_of_a_user_module_says_that_it_has_no_architecture() -> None:
    values = architecture_json(load_architecture("tiny-llama"))
    for bad in ({}, {"hidden": 6}, values | {"model": None}, values | {"norm_eps": "1e-5"}):
        with pytest.raises(CheckpointError, match="does not say which model"):
            architecture_from(bad)


def test_architectures_that_differ_in_a_number_differ() -> None:
    found = load_architecture("tiny-llama")
    assert architecture_json(found) != architecture_json(replace(found, norm_eps=1e-3))
