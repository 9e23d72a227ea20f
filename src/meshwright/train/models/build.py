"""Building a Decoder from a name, an Architecture or a Model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from meshwright.catalog.model_files import find_models, model_file
from meshwright.spec.model import Model
from meshwright.spec.model_config import load_model
from meshwright.train.models.architecture import Architecture
from meshwright.train.models.decoder import Decoder
from meshwright.train.models.read_architecture import make_architecture, read_architecture

PRESETS = Path(__file__).parent / "presets"
NUMERICS = Path(__file__).parent / "numerics.json"
"""What the catalogue's presets leave out because no cost depends on it: by preset, further keys of the config.json that
its `_source` names."""


def preset_names() -> tuple[str, ...]:
    """The small models made for training on one machine, sorted."""
    return tuple(sorted(path.stem for path in PRESETS.glob("*.json")))


def load_architecture(text: str) -> Architecture:
    """The architecture that `text` names: a small preset, a catalogue preset, a config.json or a folder with one.

    Raises ModelError: no such model, or one that the Decoder does not compute exactly.
    """
    name = text.strip().lower() if isinstance(text, str) else ""
    if name in preset_names():
        return read_architecture(_json(PRESETS / f"{name}.json"), name)
    load_model(text)  # refuses what cannot be read, with near names
    found = find_models(text)
    path = Path(text)
    if found != (name,) and path.exists():
        file = path / "config.json" if path.is_dir() else path
        return read_architecture(_json(file), file.resolve().parent.name if path.is_dir() else path.stem)
    return read_architecture(_with_numerics(found[0]), found[0])


def build_model(
    model: Model | Architecture | str, *, device: torch.device | str = "meta", dtype: torch.dtype = torch.float32
) -> Decoder:
    """The Decoder of a model. On "meta" it holds shapes only, elsewhere unset numbers, for `init.py` or a checkpoint.

    A bare Model takes what it does not say (epsilon, rotary base) from its family's defaults. Raises ModelError.
    """
    if isinstance(model, str):
        model = load_architecture(model)
    if isinstance(model, Model):
        model = make_architecture(model, {}, model.name)
    return Decoder(model, device, dtype)


def _with_numerics(preset: str) -> Mapping[str, Any]:
    more = _json(NUMERICS)
    return {**more.get(preset, {}), **_json(model_file(preset))}


def _json(file: Path) -> dict[str, Any]:
    parsed = json.loads(file.read_text(encoding="utf-8"))
    assert isinstance(parsed, dict)
    return parsed
