"""Model from a preset's name, a Hugging Face `config.json`, or its mapping."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meshwright.catalog.model_files import FOLDER, find_models, model_names, model_text
from meshwright.spec.config_reader import ConfigReader
from meshwright.spec.errors import ModelError
from meshwright.spec.families import FAMILIES, read_fields
from meshwright.spec.model import Model
from meshwright.spec.model_rules import checked

LARGEST_FILE_BYTES = 10 * 2**20


def load_model(text: str) -> Model:
    """The model that `text` names: a preset, a `config.json`, or a folder that holds one.

    Raises ModelError: unknown name (with near ones), unreadable file, or a configuration that `read_config` refuses.
    """
    path = Path(text)
    if path.suffix == ".json" or (len(path.parts) > 1 and path.exists()) or path.is_dir():
        return _load_file(path)
    found = find_models(text)
    if len(found) == 1:
        return _preset(found[0])
    if found:
        raise ModelError(f"{text} can mean several presets.", legal=found)
    near = difflib.get_close_matches(text.lower().rsplit("/", 1)[-1], model_names(), n=5, cutoff=0.5)
    raise ModelError(f"{text} is neither a preset nor a path to a config.json.", legal=near)


def list_models() -> tuple[Model, ...]:
    """All presets, sorted by name."""
    return tuple(_preset(name) for name in model_names())


def read_config(config: Mapping[str, Any], name: str = "model") -> Model:
    """The model that a Hugging Face configuration describes.

    An unknown architecture with the usual keys is read as a Llama, with a warning in `Model.warnings`.
    Raises ModelError for missing keys (all of them named), wrong types and impossible numbers.
    """
    if not isinstance(config, Mapping):
        raise ModelError(f"{name}: the configuration must be a JSON object, not {type(config).__name__}.")
    reader = ConfigReader(config, name)
    family = reader.text("model_type", "llama")
    fields = read_fields(FAMILIES[family], reader)
    return checked(Model(name=name, family=family, warnings=tuple(reader.warnings), **fields))


def _preset(name: str) -> Model:
    return read_config(_parsed(model_text(name), str(FOLDER / f"{name}.json")), name)


def _load_file(path: Path) -> Model:
    file = path / "config.json" if path.is_dir() else path
    try:
        if not file.is_file():
            raise ModelError(f"{file} does not exist or is not a file.")
        if file.stat().st_size > LARGEST_FILE_BYTES:
            raise ModelError(f"{file} is larger than 10 MiB; a config.json is a few KiB.")
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{file} cannot be read: {error}.") from error
    name = file.resolve().parent.name if file.name == "config.json" else file.stem
    return read_config(_parsed(text, str(file)), name)


def _parsed(text: str, where: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{where} is not JSON: {error}.") from error
    if not isinstance(parsed, dict):
        raise ModelError(f"{where} must hold a JSON object, not {type(parsed).__name__}.")
    return parsed
