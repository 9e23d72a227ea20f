"""The preset models: one Hugging Face style `config.json` a model, in the folder `models`.

A file's name is the preset's name. Keys beginning with `_` are ours: `_source` says where the figures come from,
`_note` what was adapted. To add a model, drop its `config.json` into the folder under the model's name and add
`_source`; other names for it go into `model_aliases.json`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

FOLDER = Path(__file__).parent / "models"
ALIASES = Path(__file__).parent / "model_aliases.json"
ENDINGS = (("hf",), ("instruct",), ("chat",), ("base",), ("it",), ("v", "0.1"))
"""Endings that name a fine-tune, a format or the first release of the same architecture."""


def model_names() -> tuple[str, ...]:
    """The presets' names, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


def model_file(name: str) -> Path:
    """The configuration file of the preset `name`, spelled exactly."""
    return FOLDER / f"{name}.json"


def find_models(text: str) -> tuple[str, ...]:
    """The presets that `text` can mean: one if it is exact, else those that differ only in case, organisation
    (`meta-llama/…`), separators or an ending such as `-hf` or `-instruct`, or that have it as an alias.
    """
    wanted = text.strip().lower()
    names = model_names()
    if wanted in names:
        return (wanted,)
    known = {name: name for name in names} | json.loads(ALIASES.read_text(encoding="utf-8"))
    spelled = {name: _words(name) for name in known}
    words = _words(wanted)
    while words:
        found = {known[name] for name, those in spelled.items() if those == words}
        ending = next((e for e in ENDINGS if words[-len(e) :] == e), None)
        if found or ending is None:
            return tuple(sorted(found))
        words = words[: -len(ending)]
    return ()


def _words(text: str) -> tuple[str, ...]:
    """The letters and numbers of a name without its organisation: `org/Llama-3-8B` and `llama3-8b` are the same."""
    words = re.findall(r"\d+(?:\.\d+)*|[a-z]+", text.rsplit("/", 1)[-1].lower())
    return tuple(words[1:] if words[:1] == ["meta"] else words)
