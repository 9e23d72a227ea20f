"""How each architecture's configuration is read: one table a family.

`FAMILIES` maps a configuration's `model_type` to its `Family`; `read_fields` reads one.
"""

from __future__ import annotations

from meshwright.spec.families.dense import DENSE
from meshwright.spec.families.family import Family, Fields, read_fields

FAMILIES: dict[str, Family] = {**DENSE}

__all__ = ["FAMILIES", "Family", "Fields", "read_fields"]
