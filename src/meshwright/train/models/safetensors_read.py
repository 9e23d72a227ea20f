"""Reading Hugging Face checkpoints: only the bytes of the boxes that are asked for.

Only safetensors files are read; nothing in them can execute.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from meshwright.spec.errors import RequestError
from meshwright.train.models.architecture import Architecture
from meshwright.train.models.decoder import Decoder, weight_shapes
from meshwright.train.models.hf_names import Form, Piece, forms, is_ignorable

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
SHOWN = 5
"""Names that a message lists before it says how many more there are."""


class WeightsError(RequestError):
    """Weights that cannot be read or written."""


class Weights:
    """A checkpoint folder (one file or shards with an index), or one safetensors file, read as a model's parameters.

    On opening, every parameter must be there in its shape, and nothing else: raises WeightsError that names the
    tensors and shapes.
    """

    def __init__(self, path: str | Path, architecture: Architecture) -> None:
        self.path = Path(path)
        self.architecture = architecture
        self._files: dict[Path, Any] = {}
        self._where = self._index()
        self._forms = {name: self._form(name) for name in weight_shapes(architecture)}
        self._check()

    def read_box(self, name: str, offset: Sequence[int], size: Sequence[int]) -> Tensor:
        """The box [offset, offset + size) of our parameter `name`, in the checkpoint's dtype, on the CPU.

        Files are mapped into memory: what is not touched is not read, and the result may be a view of the file.
        """
        if name == "head.weight" and self.architecture.model.tied_embeddings:
            name = "embed.tokens.weight"
        form = self._forms[name]
        if form[0].expert is None:
            return self._read(form[0], offset, size)
        held = form[offset[0] : offset[0] + size[0]]
        if not held:
            return torch.empty(tuple(size))
        return torch.stack([self._read(piece, offset[1:], size[1:]) for piece in held])

    def fill(self, name: str, offset: Sequence[int], size: Sequence[int], out: Tensor) -> None:
        """Copy that box into `out`, which is of shape `size`, of any dtype, on any device."""
        with torch.no_grad():
            out.copy_(self.read_box(name, offset, size))

    def _index(self) -> dict[str, Path]:
        """The file of each tensor."""
        if self.path.is_file():
            files = [self.path]
        elif (self.path / INDEX).is_file():
            files = self._shards(self.path / INDEX)
        elif (self.path / SINGLE).is_file():
            files = [self.path / SINGLE]
        else:
            raise WeightsError(f"{self.path} holds no weights.", legal=(SINGLE, INDEX, "a .safetensors file"))
        return {name: file for file in files for name in self._open(file).keys()}  # noqa: SIM118 (no mapping)

    def _shards(self, index: Path) -> list[Path]:
        try:
            where = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            names = sorted(set(where.values()))
            # A name with a folder in it could point anywhere.
            if not all(Path(name).name == name for name in names):
                raise ValueError("a shard lies outside the folder")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise WeightsError(f"{index} is no index of shards: {error}.") from error
        return [index.parent / name for name in names]

    def _open(self, file: Path) -> Any:
        if file not in self._files:
            try:
                self._files[file] = safe_open(file, framework="pt", device="cpu")
            except FileNotFoundError as error:
                raise WeightsError(f"{file} is missing: the index names it.") from error
            except (SafetensorError, OSError) as error:
                raise WeightsError(f"{file} is not a whole safetensors file: {error}.") from error
        return self._files[file]

    def _form(self, name: str) -> Form:
        """The first form all of whose tensors are there, else the first."""
        known = forms(self.architecture, name)
        return next((form for form in known if all(p.tensor in self._where for p in form)), known[0])

    def _check(self) -> None:
        pieces = {piece.tensor: piece for form in self._forms.values() for piece in form}
        missing = [f"{p.tensor} {list(p.shape)}" for p in pieces.values() if p.tensor not in self._where]
        wrong = []
        for piece in pieces.values():
            found = self._shape(piece.tensor) if piece.tensor in self._where else piece.shape
            if found != piece.shape:
                wrong.append(f"{piece.tensor} is {list(found)}, the model's is {list(piece.shape)}")
        extra = [t for t in self._where if t not in pieces and not is_ignorable(self.architecture, t)]
        found_faults = (("missing", missing), ("of another shape", wrong), ("not part of the model", extra))
        faults = [f"{what}: {_some(names)}" for what, names in found_faults if names]
        if faults:
            raise WeightsError(f"{self.path} does not fit {self.architecture.model.name}: {'; '.join(faults)}.")

    def _shape(self, tensor: str) -> tuple[int, ...]:
        return tuple(self._open(self._where[tensor]).get_slice(tensor).get_shape())

    def _read(self, piece: Piece, offset: Sequence[int], size: Sequence[int]) -> Tensor:
        """A box of what the piece holds, read from the box of the tensor where it lies."""
        box = [slice(o, o + n) for o, n in zip(offset, size, strict=True)]
        if piece.transposed:
            box.reverse()
        box[piece.dim] = slice(box[piece.dim].start + piece.start, box[piece.dim].stop + piece.start)
        file = self._where[piece.tensor]
        if 0 in size:
            return torch.empty(tuple(size))
        try:
            part: Tensor = self._open(file).get_slice(piece.tensor)[tuple(box)]
        except (SafetensorError, OSError) as error:
            raise WeightsError(f"{file}: {piece.tensor} cannot be read: {error}.") from error
        return part.t() if piece.transposed else part


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def load_weights(decoder: Decoder, path: str | Path) -> None:
    """Fill a model (or a pipeline stage) that one process holds whole from a checkpoint. Raises WeightsError."""
    weights = Weights(path, decoder.architecture)
    for name, tensor in decoder.state_dict().items():
        shape = tuple(tensor.shape)
        weights.fill(name, (0,) * len(shape), shape, tensor)
