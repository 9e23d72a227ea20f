"""Model from a preset's name, a Hugging Face `config.json`, or its mapping."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meshwright.catalog.model_files import find_models, model_file, model_names
from meshwright.spec.config_reader import ConfigReader
from meshwright.spec.errors import ModelError
from meshwright.spec.families import FAMILIES, REFUSED, UNKNOWN, read_fields
from meshwright.spec.model import Model
from meshwright.spec.model_rules import checked

LARGEST_FILE_BYTES = 10 * 2**20


def load_model(text: str) -> Model:
    """The model that `text` names: a preset, else a `config.json` or a folder that holds one.

    An exact preset name wins over a folder of that name (write `./gpt2` for the folder). Case, separators, the
    organisation and endings such as `-hf` do not matter in a preset's name. Raises ModelError: unknown or ambiguous
    name (with near ones), unreadable file, or a configuration that `read_config` refuses.
    """
    if not isinstance(text, str) or not text.strip():
        raise ModelError(f"A model is named by a preset or a path, not by {text!r}.")
    found = find_models(text)
    if found == (text.strip().lower(),):
        return _load_file(model_file(found[0]), found[0])
    path = _existing(text)
    if path is not None:
        return _load_file(path, path.resolve().parent.name if path.name == "config.json" else path.stem)
    if len(found) == 1:
        return _load_file(model_file(found[0]), found[0])
    if found:
        raise ModelError(f"{text!r} can mean several presets.", legal=found)
    near = difflib.get_close_matches(text.strip().lower().rsplit("/", 1)[-1], model_names(), n=5, cutoff=0.4)
    known = "a preset (`meshwright models` lists them)"
    raise ModelError(f"{text[:200]!r} is neither {known} nor the path of a config.json.", legal=near)


def list_models() -> tuple[Model, ...]:
    """All presets, sorted by name."""
    return tuple(_load_file(model_file(name), name) for name in model_names())


def read_config(config: Mapping[str, Any], name: str = "model") -> Model:
    """The model that a Hugging Face configuration describes.

    An unknown architecture with the usual keys is read as a Llama, with a warning in `Model.warnings`; of a
    multimodal wrapper only `text_config` is read, with a warning. Raises ModelError for missing keys (all of them
    named), wrong types and impossible numbers.
    """
    return _read(config, name, where=name)


def _read(config: Mapping[str, Any], name: str, where: str) -> Model:
    if not isinstance(config, Mapping):
        raise ModelError(f"{where}: a configuration is a JSON object, not a {type(config).__name__}.")
    outer = ConfigReader(config, where)
    reader = _text_part(outer)
    family = _family(reader)
    fields = read_fields(FAMILIES.get(family, UNKNOWN), reader)
    if outer.find("quantization_config")[1] or reader.find("quantization_config")[1]:
        reader.warnings.append("quantization_config: left out; every weight is priced unquantised")
    model = Model(name=name, family=family, warnings=tuple(reader.warnings), source=outer.text("_source"), **fields)
    return checked(model, where)


def _text_part(reader: ConfigReader) -> ConfigReader:
    """The reader of the language model inside a multimodal wrapper, or the reader itself."""
    if reader.find("text_config")[1] is None:
        return reader
    others = sorted(key for key in reader.config if str(key).endswith("_config") and key != "text_config")
    inner = reader.section("text_config")
    left_out = [key for key in others if isinstance(reader.config[key], Mapping) and key != "quantization_config"]
    inner.warnings.append(f"only text_config is read; left out: {', '.join(left_out) or 'everything around it'}")
    return inner


def _family(reader: ConfigReader) -> str:
    """The configuration's `model_type`; raises ModelError where no decoder can stand for it."""
    family = reader.text("model_type")
    if family in FAMILIES:
        return family
    if family in REFUSED:
        raise ModelError(f"{reader.where}: model_type {family}: {REFUSED[family]}.")
    if reader.boolean("is_encoder_decoder", False):
        raise ModelError(f"{reader.where}: is_encoder_decoder: encoder-decoder models are not modelled.")
    what = f"model_type {family[:60]!r} is unknown" if family else "there is no model_type"
    near = difflib.get_close_matches(family, FAMILIES, n=2)
    hint = f" (did you mean {' or '.join(near)}?)" if near else ""
    reader.warnings.append(
        f"{what}{hint}: read as a Llama (RMSNorm, rotary positions, gated feed-forward), so counts may be off"
    )
    return family or "unknown"


def _existing(text: str) -> Path | None:
    """The configuration file that `text` is a path to. None: nothing is there, and it does not look like a path."""
    path = Path(text)
    try:
        if path.is_dir():
            return path / "config.json"
        if path.exists() or path.suffix == ".json":
            return path
    except (OSError, ValueError) as error:
        raise ModelError(f"{text[:60]!r} cannot be opened: {_reason(error)}.") from error
    return None


def _load_file(file: Path, name: str) -> Model:
    text = _text_of(file)
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{file} is not valid JSON: {error}.") from error
    return _read(parsed, name, where=str(file))


def _text_of(file: Path) -> str:
    try:
        if not file.is_file():
            raise ModelError(f"{file} does not exist or is not a file.")
        if file.stat().st_size > LARGEST_FILE_BYTES:
            raise ModelError(f"{file} is larger than 10 MiB; a config.json is a few KiB.")
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{file} cannot be read: {_reason(error)}.") from error


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
