"""Writing Hugging Face checkpoints that `transformers` loads: shards, index, config.json."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from meshwright.train.models.architecture import Architecture
from meshwright.train.models.decoder import Decoder, parameter_shapes, weight_shapes
from meshwright.train.models.hf_config import hf_config
from meshwright.train.models.hf_names import Piece, forms
from meshwright.train.models.safetensors_read import INDEX, SINGLE, WeightsError

SHARD_BYTES = 5 * 10**9


def save_weights(
    folder: str | Path,
    architecture: Architecture,
    read: Callable[[str], Tensor],
    *,
    dtype: torch.dtype | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> None:
    """Write a checkpoint of whole parameters into `folder`, which must not exist or be empty.

    `read(name)` gives one whole parameter of ours; each is read once, and at most one shard is held in memory besides.
    `dtype`: what is written; None: as read. The folder appears when all of it is there; a killed process may leave
    `<folder>.partial`. Raises WeightsError: folder in use, no room, or a model that Hugging Face has no class for.
    """
    target = Path(folder)
    partial = target.with_name(target.name + ".partial")
    config = hf_config(architecture)
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise WeightsError(f"{target} is there already and is not an empty folder.")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        used = _write_shards(partial, _tensors(architecture, read, dtype), shard_bytes)
        config["dtype"] = str(used).removeprefix("torch.")
        _write_json(partial / "config.json", config)
        os.replace(partial, target)
    except OSError as error:
        raise WeightsError(f"{target} cannot be written: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def save_decoder(folder: str | Path, decoder: Decoder, *, dtype: torch.dtype | None = None) -> None:
    """Write a model that one process holds whole. Raises WeightsError."""
    tensors = decoder.state_dict()
    save_weights(folder, decoder.architecture, tensors.__getitem__, dtype=dtype)


def _tensors(a: Architecture, read: Callable[[str], Tensor], dtype: torch.dtype | None) -> Iterator[tuple[str, Tensor]]:
    """The checkpoint's tensors, parameter by parameter; a tensor made of several waits for the last."""
    waiting: dict[str, dict[int, tuple[Piece, Tensor]]] = {}
    kept = weight_shapes(a).keys() - parameter_shapes(a).keys()  # buffers keep their digits
    for name in weight_shapes(a):
        whole = read(name).cpu()
        whole = whole if name in kept else whole.to(dtype=dtype)
        for piece in forms(a, name)[0]:
            part = whole if piece.expert is None else whole[piece.expert]
            part = part.t() if piece.transposed else part
            if piece.shape[piece.dim] == piece.length:
                yield piece.tensor, part.contiguous()
                continue
            parts = waiting.setdefault(piece.tensor, {})
            parts[piece.start] = (piece, part)
            if sum(p.length for p, _ in parts.values()) == piece.shape[piece.dim]:
                ordered = [part for _, (_, part) in sorted(waiting.pop(piece.tensor).items())]
                yield piece.tensor, torch.cat(ordered, dim=piece.dim)
    if waiting:
        raise AssertionError(f"unfinished tensors: {sorted(waiting)}")


def _write_shards(folder: Path, tensors: Iterator[tuple[str, Tensor]], shard_bytes: int) -> torch.dtype:
    """Write the tensors in order into as few files as `shard_bytes` allows; returns their dtype."""
    shards: list[list[str]] = []
    held: dict[str, Tensor] = {}
    total, used = 0, torch.float32

    def flush() -> None:
        file = folder / f"{len(shards)}.part"
        save_file(held, file, metadata={"format": "pt"})
        file.chmod(0o644)  # safetensors makes it its owner's alone
        shards.append(list(held))
        held.clear()

    for name, tensor in tensors:
        if held and sum(t.nbytes for t in held.values()) + tensor.nbytes > shard_bytes:
            flush()
        # Storage of its own: one expert of a stack would else be saved as a view of all.
        held[name] = tensor.clone() if tensor.untyped_storage().nbytes() != tensor.nbytes else tensor
        total, used = total + tensor.nbytes, tensor.dtype
    flush()
    if len(shards) == 1:
        os.replace(folder / "0.part", folder / SINGLE)
        return used
    where = {}
    for i, names in enumerate(shards):
        file = f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors"
        os.replace(folder / f"{i}.part", folder / file)
        where.update(dict.fromkeys(names, file))
    _write_json(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": where})
    return used


def _write_json(file: Path, content: dict[str, object]) -> None:
    file.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
