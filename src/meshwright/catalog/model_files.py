"""The preset models: one Hugging Face style `config.json` a model, in the folder `models`.

A file's name is the preset's name. Keys beginning with `_` are ours: `_source` says where the figures come from.
To add a model, drop its `config.json` into the folder under the model's name and add `_source`.
"""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent / "models"
IGNORED = ("-hf", "-instruct", "-chat", "-base", "-it")
"""Endings that name a fine-tune or a file format of the same architecture."""


def model_names() -> tuple[str, ...]:
    """The presets' names, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


def model_text(name: str) -> str:
    """The JSON text of the preset `name`, spelled exactly. Raises FileNotFoundError."""
    return (FOLDER / f"{name}.json").read_text(encoding="utf-8")


def find_models(text: str) -> tuple[str, ...]:
    """The presets that `text` can mean: one if it is exact, else those that differ only in case, organisation
    (`meta-llama/…`), separators or an ending such as `-hf` or `-instruct`.
    """
    wanted = text.strip().lower()
    names = model_names()
    if wanted in names:
        return (wanted,)
    return tuple(name for name in names if _key(name) == _key(wanted))


def _key(text: str) -> str:
    """What is left of a name without organisation, endings and separators."""
    bare = text.rsplit("/", 1)[-1]
    for ending in IGNORED:
        bare = bare.removesuffix(ending)
    return re.sub(r"[^a-z0-9.]", "", bare.removeprefix("meta-"))
