"""The shape of a model that is only named: from the catalogue's configuration files."""

from __future__ import annotations

import json
from typing import Any

from meshwright.diagnose.configuration.names import name_of
from meshwright.diagnose.configuration.values import value_of

SHAPE = ("layers", "heads", "kv_heads", "experts", "hidden", "vocabulary")


def shape_of(text: str) -> dict[str, int]:
    """Counts of a model that the catalogue knows under this name; empty: it knows none, or several."""
    shape: dict[str, int] = {}
    for key, value in configuration_of(text).items():
        number = value_of(value)
        if (known := name_of(key)) in SHAPE and isinstance(number, int) and not isinstance(number, bool):
            shape.setdefault(known, number)
    return shape


def configuration_of(text: str) -> dict[str, Any]:
    """The configuration file that the catalogue has for this name; empty: none, or several."""
    from meshwright.catalog.model_files import find_models, model_file

    name = text.split("(")[0].split(",")[0].strip()[:80]
    found = find_models(name) if any(letter.isalpha() for letter in name) else ()
    if len(found) != 1:
        return {}
    parsed = json.loads(model_file(found[0]).read_text(encoding="utf-8"))
    return parsed if isinstance(parsed, dict) else {}
