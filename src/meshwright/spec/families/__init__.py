"""How each architecture's configuration is read: one table a family.

`FAMILIES` maps a configuration's `model_type` to its `Family`; `read_fields` reads one. `UNKNOWN` reads any other as a
Llama, unless `REFUSED` says why that would be wrong.
"""

from __future__ import annotations

from meshwright.spec.families.absolute import ABSOLUTE
from meshwright.spec.families.dense import DENSE
from meshwright.spec.families.family import Family, Fields, read_fields
from meshwright.spec.families.megatron import MEGATRON
from meshwright.spec.families.mixtures import MIXTURES
from meshwright.spec.families.unknown import REFUSED, UNKNOWN

FAMILIES: dict[str, Family] = {**ABSOLUTE, **DENSE, **MEGATRON, **MIXTURES}

__all__ = ["FAMILIES", "REFUSED", "UNKNOWN", "Family", "Fields", "read_fields"]
