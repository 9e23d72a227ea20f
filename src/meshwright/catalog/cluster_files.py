"""The catalogue's files about clusters, as plain tables: devices and hosts, links, fitted efficiencies.

Nothing is checked or converted here; `spec.cluster_catalog` turns tables into the nouns and refuses what is wrong.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

Table = Mapping[str, Any]

HERE = Path(__file__).parent


@cache
def read_table(path: Path) -> Table:
    """The TOML file at `path`; an absent file is an empty table. Read once a process (`read_table.cache_clear()`)."""
    if not path.exists():
        return {}
    with path.open("rb") as file:
        return tomllib.load(file)


def device_tables() -> Table:
    """`devices.toml`: `devices` and `hosts` by name, `assumed` names, `runs` (published spellings)."""
    return read_table(HERE / "devices.toml")


def link_tables() -> Table:
    """`links.toml`: `links` by name, inside a node and between nodes."""
    return read_table(HERE / "links.toml")


def efficiency_tables() -> Table:
    """`efficiency.toml`: fitted constants, `default` and by device name; empty when the file is absent."""
    return read_table(HERE / "efficiency.toml")
