"""The catalogue's files about software: implementation classes, and what a published run's framework implies."""

from __future__ import annotations

from pathlib import Path

from meshwright.catalog.cluster_files import Table, read_table

HERE = Path(__file__).parent


def implementation_tables() -> Table:
    """`implementations.toml`: constants by class of software."""
    return read_table(HERE / "implementations.toml")


def framework_tables() -> list[Table]:
    """`frameworks.toml`: entries in order of precedence."""
    entries: list[Table] = read_table(HERE / "frameworks.toml")["framework"]
    return entries
