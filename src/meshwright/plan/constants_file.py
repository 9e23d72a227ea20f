"""Writes fitted constants into the catalogue: whole files anew, sorted, so that two fits differ only in numbers."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meshwright.catalog.cluster_files import device_tables, efficiency_tables, read_table
from meshwright.catalog.software_files import HERE, implementation_tables
from meshwright.plan.free_constants import DEFAULT, DEVICE, FreeConstant
from meshwright.plan.history import device_class

DIGITS = 4
"""Significant digits of a fitted constant: a thousandth of a constant moves no price by more than a thousandth."""

Tables = Mapping[str, Mapping[str, Any]]


def save_fit(values: Mapping[FreeConstant, float], made_by: str, folder: Path = HERE) -> tuple[Path, ...]:
    """Put fitted values into `efficiency.toml` and `implementations.toml`; what was not fitted stays as it is.

    `made_by` says from what and how, and goes on top of both files. Returns the paths. Raises OSError.
    """
    devices: dict[str, dict[str, float]] = {}
    software: dict[str, dict[str, float]] = {}
    for constant, value in values.items():
        if constant.kind != DEVICE:
            software.setdefault(constant.owner, {})[constant.name] = value
            continue
        for name in devices_of(constant.owner):
            devices.setdefault(name, {})[constant.name] = value
    files = (
        (
            "efficiency.toml",
            "What devices reach: spec/cluster.py says what each constant means.",
            efficiency_tables(),
            devices,
        ),
        (
            "implementations.toml",
            "Constants of the classes of software: spec/implementation.py says what each means.",
            implementation_tables(),
            software,
        ),
    )
    for name, title, old, new in files:
        write_constants(folder / name, merged(old, new), f"{title}\n{made_by}")
    read_table.cache_clear()
    return tuple(folder / name for name, *_ in files)


def devices_of(owner: str) -> tuple[str, ...]:
    """Tables of `efficiency.toml` that hold a chip's constants: every device of the catalogue built on it."""
    if owner == DEFAULT:
        return (DEFAULT,)
    return tuple(name for name in device_tables()["devices"] if device_class(name) == owner)


def merged(old: Tables, new: Tables) -> dict[str, dict[str, Any]]:
    """`old` with the values of `new` in their place."""
    return {name: {**old.get(name, {}), **new.get(name, {})} for name in sorted({*old, *new})}


def write_constants(path: Path, tables: Tables, header: str) -> None:
    """Replace the TOML file at `path` in one move: a table a name, keys sorted, `header` as comments on top.

    Raises OSError. Numbers are written with DIGITS significant digits.
    """
    lines = [f"# {line}".rstrip() for line in header.splitlines()]
    for name in sorted(tables):
        lines += ["", f"[{_key(name)}]"]
        lines += [f"{_key(key)} = {_value(value)}" for key, value in sorted(tables[name].items())]
    text = "\n".join(lines) + "\n"
    tomllib.loads(text)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def _key(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").isalnum() and name.isascii() else f'"{name}"'


def _value(value: bool | int | float | str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, int):
        return str(value)
    text = f"{value:.{DIGITS}g}"
    return text if set(text) & set(".e") else f"{text}.0"
