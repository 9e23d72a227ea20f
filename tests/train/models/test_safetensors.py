"""Checkpoint files: boxes, shards, what does not fit, what is broken."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from meshwright.spec.errors import RequestError
from meshwright.train.models.architecture import Architecture
from meshwright.train.models.build import build_model, load_architecture
from meshwright.train.models.decoder import Decoder
from meshwright.train.models.init import init_module
from meshwright.train.models.safetensors_read import INDEX, Weights, load_weights
from meshwright.train.models.safetensors_write import save_decoder, save_weights


def fresh(name: str, seed: int = 3) -> Decoder:
    model = build_model(name, device="cpu")
    init_module(model, seed)
    for i, buffer in enumerate(model.buffers()):
        buffer.copy_(torch.randn(buffer.shape, generator=torch.Generator().manual_seed(i)))
    return model


def numbers(model: Decoder) -> dict[str, Tensor]:
    return {name: tensor.detach() for name, tensor in (*model.named_parameters(), *model.named_buffers())}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.fixture(scope="module", params=["tiny-gpt2", "tiny-qwen3", "tiny-mixtral", "tiny-qwen2-moe", "tiny-deepseek"])
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Decoder, Path]:
    model = fresh(request.param)
    folder = tmp_path_factory.mktemp("weights") / request.param
    save_decoder(folder, model)
    return model, folder


def test_what_is_written_is_read_back(saved: tuple[Decoder, Path]) -> None:
    model, folder = saved
    again = build_model(load_architecture(str(folder)), device="cpu")
    load_weights(again, folder)
    assert same(numbers(model), numbers(again))
    assert load_architecture(str(folder)).windows == model.architecture.windows
    assert load_architecture(str(folder)).rope == model.architecture.rope


def test_every_half_of_every_parameter_is_the_half_that_was_written(saved: tuple[Decoder, Path]) -> None:
    model, folder = saved
    weights = Weights(folder, model.architecture)
    for name, whole in numbers(model).items():
        for dim, half in itertools.product(range(whole.dim()), (0, 1)):
            size, offset = list(whole.shape), [0] * whole.dim()
            size[dim] //= 2
            offset[dim] = half * size[dim]
            box = weights.read_box(name, offset, size)
            assert torch.equal(box, whole.narrow(dim, offset[dim], size[dim])), (name, dim, half)
        nothing = [0, *whole.shape[1:]]
        assert weights.read_box(name, list(whole.shape[:1]) + [0] * (whole.dim() - 1), nothing).shape == tuple(nothing)


def test_shards_hold_what_one_file_holds(tmp_path: Path) -> None:
    model = fresh("tiny-mixtral")
    save_decoder(tmp_path / "one", model)
    save_weights(tmp_path / "many", model.architecture, numbers(model).__getitem__, shard_bytes=400_000)
    index = json.loads((tmp_path / "many" / INDEX).read_text())
    files = sorted(set(index["weight_map"].values()))
    assert len(files) > 4
    assert {p.name for p in (tmp_path / "many").iterdir()} == {*files, INDEX, "config.json"}
    assert all((tmp_path / "many" / file).stat().st_size < 420_000 for file in files)
    assert index["metadata"]["total_size"] == sum(t.nbytes for t in numbers(model).values())
    joined = {k: v for file in files for k, v in load_file(tmp_path / "many" / file).items()}
    assert same(joined, load_file(tmp_path / "one" / "model.safetensors"))
    again = build_model(model.architecture, device="cpu")
    load_weights(again, tmp_path / "many")
    assert same(numbers(model), numbers(again))


def test_experts_stacked_as_transformers_5_holds_them_are_read(tmp_path: Path) -> None:
    model = fresh("tiny-mixtral")
    save_decoder(tmp_path, model)
    tensors, stacked = load_file(tmp_path / "model.safetensors"), {}
    for name, tensor in tensors.items():
        if ".experts." not in name:
            stacked[name.replace("block_sparse_moe", "mlp")] = tensor
    for layer in range(4):
        old, new = f"model.layers.{layer}.block_sparse_moe.experts", f"model.layers.{layer}.mlp.experts"
        both = [torch.cat((tensors[f"{old}.{e}.w1.weight"], tensors[f"{old}.{e}.w3.weight"])) for e in range(8)]
        stacked[f"{new}.gate_up_proj"] = torch.stack(both)
        stacked[f"{new}.down_proj"] = torch.stack([tensors[f"{old}.{e}.w2.weight"] for e in range(8)])
    save_file(stacked, tmp_path / "stacked.safetensors")
    again = build_model(model.architecture, device="cpu")
    load_weights(again, tmp_path / "stacked.safetensors")
    assert same(numbers(model), numbers(again))


def test_the_first_gpt2_files_are_read_without_prefix_and_with_their_masks(tmp_path: Path) -> None:
    model = fresh("tiny-gpt2")
    save_decoder(tmp_path, model)
    old = {k.removeprefix("transformer."): v for k, v in load_file(tmp_path / "model.safetensors").items()}
    old["h.0.attn.bias"] = torch.ones(1, 1, 8, 8)
    save_file(old, tmp_path / "old.safetensors")
    again = build_model(model.architecture, device="cpu")
    load_weights(again, tmp_path / "old.safetensors")
    assert same(numbers(model), numbers(again))


def test_other_dtypes_are_cast(tmp_path: Path) -> None:
    model = fresh("tiny-qwen2")
    save_decoder(tmp_path, model, dtype=torch.bfloat16)
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "bfloat16"
    again = build_model(model.architecture, device="cpu", dtype=torch.float64)
    load_weights(again, tmp_path)
    assert all(torch.equal(p.bfloat16().double(), numbers(again)[n]) for n, p in numbers(model).items())


def refusal(path: Path, architecture: Architecture) -> str:
    with pytest.raises(RequestError) as error:
        load_weights(build_model(architecture, device="cpu"), path)
    return str(error.value)


def test_a_checkpoint_that_does_not_fit_is_refused_with_tensor_and_shapes(tmp_path: Path) -> None:
    save_decoder(tmp_path / "w", fresh("tiny-llama"))
    file, tensors = tmp_path / "changed.safetensors", load_file(tmp_path / "w" / "model.safetensors")
    architecture = load_architecture("tiny-llama")

    missing = dict(tensors)
    del missing["model.layers.3.mlp.up_proj.weight"]
    save_file(missing, file)
    assert "missing: model.layers.3.mlp.up_proj.weight [256, 128]" in refusal(file, architecture)

    save_file({**tensors, "model.norm.weight": torch.ones(64)}, file)
    assert "model.norm.weight is [64], the model's is [128]" in refusal(file, architecture)

    save_file({**tensors, "model.layers.8.mlp.up_proj.weight": torch.ones(1)}, file)
    assert "not part of the model: model.layers.8.mlp.up_proj.weight" in refusal(file, architecture)

    many = refusal(tmp_path / "w", load_architecture("tiny-mixtral"))
    assert "more" in many
    assert len(many) < 2000


def test_broken_files_are_refused_in_one_line(tmp_path: Path) -> None:
    model = fresh("tiny-llama")
    architecture = model.architecture
    assert "holds no weights" in refusal(tmp_path, architecture)
    save_weights(tmp_path / "w", architecture, numbers(model).__getitem__, shard_bytes=2_000_000)
    shard = sorted((tmp_path / "w").glob("*.safetensors"))[1]
    whole = shard.read_bytes()
    for broken in (whole[:1000], whole[:-100], b"", b"\xff" * 200):
        shard.write_bytes(broken)
        assert f"{shard} is not a whole safetensors file" in refusal(tmp_path / "w", architecture)
    shard.unlink()
    assert f"{shard} is missing" in refusal(tmp_path / "w", architecture)
    index = tmp_path / "w" / INDEX
    for broken in (
        "{",
        "[]",
        "{}",
        '{"weight_map": 3}',
        '{"weight_map": {"a": "../../x"}}',
        '{"weight_map": {"a": 3}}',
    ):
        index.write_text(broken)
        assert f"{index} is no index of shards" in refusal(tmp_path / "w", architecture)


def test_nothing_is_overwritten_and_a_failed_write_leaves_no_checkpoint(tmp_path: Path) -> None:
    model = fresh("tiny-llama")
    save_decoder(tmp_path / "w", model)
    with pytest.raises(RequestError, match="is there already"):
        save_decoder(tmp_path / "w", model)

    def fails(name: str) -> Tensor:
        if name == "norm.weight":
            raise OSError(28, "No space left on device")
        return numbers(model)[name]

    with pytest.raises(RequestError, match="No space left on device"):
        save_weights(tmp_path / "other", model.architecture, fails, shard_bytes=500_000)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["w"]
