"""The numbers of a model to train, without torch: a small preset of `train/models`, or what `load_model` knows."""

from __future__ import annotations

import json
from difflib import get_close_matches
from pathlib import Path

from meshwright.spec.errors import ModelError
from meshwright.spec.model import Model
from meshwright.spec.model_config import load_model, read_config

SMALL = Path(__file__).parent.parent / "models" / "presets"


def small_names() -> tuple[str, ...]:
    """The presets made for training on one machine."""
    return tuple(sorted(path.stem for path in SMALL.glob("*.json")))


def model_to_train(text: str) -> Model:
    """The model that `text` names: a small preset, a catalogue preset, a config.json or a folder with one.

    Raises ModelError with near names.
    """
    name = text.strip().lower()
    if name in small_names():
        return read_config(json.loads((SMALL / f"{name}.json").read_text(encoding="utf-8")), name)
    try:
        return load_model(text)
    except ModelError as error:
        if not error.legal or Path(text).exists():
            raise
        near = get_close_matches(name, small_names(), n=3, cutoff=0.6) or small_names()
        message = (
            f"{text[:200]!r} is neither a small preset, nor a large one (`meshwright models` lists those), "
            "nor the path of a config.json."
        )
        raise ModelError(message, [*near, *error.legal[:2]]) from error
