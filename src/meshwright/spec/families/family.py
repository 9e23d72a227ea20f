"""Family: how the configurations of one architecture are read. Data, with one hook for what a table cannot say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from meshwright.spec.config_reader import ConfigReader

Fields = dict[str, Any]
"""Fields of a Model by name."""


def no_more(reader: ConfigReader, fields: Fields) -> Fields:
    """Nothing beyond the table."""
    return {}


@dataclass(frozen=True, slots=True)
class Family:
    """One architecture: where its numbers are, what is fixed, what is a switch."""

    keys: Mapping[str, tuple[str, ...]]
    """Model field -> the configuration's names for it, the usual one first."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Model fields that the architecture decides."""
    switches: Mapping[str, tuple[str, bool]] = field(default_factory=dict)
    """Model field -> boolean key and its default when absent (the default of the published implementation)."""
    defaults: Mapping[str, int] = field(default_factory=dict)
    """Model field -> number when its key is absent (the default of the published implementation)."""
    ffn_multiple: int = 0
    """The feed-forward width is this many times hidden when its key is absent; 0: the key must be there."""
    more: Callable[[ConfigReader, Fields], Fields] = no_more
    """The remaining fields, from the configuration and what the tables gave."""


MOST_LAYERS = 10_000
DERIVED = ("kv_heads", "head_dim")
"""Model fields that follow from the others where neither the configuration nor the family gives them."""


def read_fields(family: Family, reader: ConfigReader) -> Fields:
    """The Model fields that a configuration of this family gives. Raises ModelError."""
    optional = set(DERIVED) | ({"ffn_hidden"} if family.ffn_multiple else set())
    fields: Fields = dict(family.fixed)
    for name, keys in family.keys.items():
        default = family.defaults.get(name)
        if default is None and name in optional and reader.find(*keys)[1] is None:
            continue
        if name == "layers":
            fields[name] = reader.integer(*keys, largest=MOST_LAYERS)
        else:
            fields[name] = reader.integer(*keys, default=default)
    for name, (key, standard) in family.switches.items():
        fields[name] = reader.boolean(key, standard)
    fields.update(family.more(reader, fields))
    reader.finish()
    return _completed(family, reader, fields)


def _completed(family: Family, reader: ConfigReader, fields: Fields) -> Fields:
    """The fields with what follows from the others where the configuration is silent."""
    hidden, heads = fields["hidden"], fields["heads"]
    fields.setdefault("ffn_hidden", family.ffn_multiple * hidden)
    fields.setdefault("kv_heads", heads)
    if "head_dim" not in fields:
        if hidden % heads:
            key, width = family.keys["heads"][0], family.keys["hidden"][0]
            raise reader.error(key, heads, f"a divisor of {width} ({hidden}), or head_dim must be given")
        fields["head_dim"] = hidden // heads
    return fields
