"""The configuration as a TOML file: read with the line of every error, written so that it reads back equal."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshwright.spec.errors import RequestError
from meshwright.train.config.files import write_atomically
from meshwright.train.config.keys import keys, nearest_keys, sections
from meshwright.train.config.toml_lines import line_of
from meshwright.train.config.tree import TrainConfig
from meshwright.train.config.values import ConfigError, checked, shown

MOST_BYTES = 2**20
"""Size of the largest file that is read."""
HEADING = "# A training run of Meshwright; `meshwright train THIS-FILE` runs it again.\n\n"


@dataclass(frozen=True, slots=True)
class FileValue:
    """A value that a file sets."""

    value: Any
    place: str
    """File and line."""


def read_values(path: Path) -> dict[str, FileValue]:
    """The values that a file sets, by dotted path, checked.

    Raises ConfigError, which names file and line: no such file, broken TOML, an unknown key, an impossible value.
    """
    text = _text(path)
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        reason = "nested too deep" if isinstance(error, RecursionError) else str(error)
        last = f"at line {text.count(chr(10)) + 1}, the end"
        raise ConfigError(f"{path}: broken TOML: {reason.replace('at end of document', last)}.") from error
    found = {}
    for name, value in _flat(table, text, path):
        key = keys().get(name)
        place = _place(path, text, tuple(name.split(".")))
        if key is None:
            raise ConfigError(f"{place}: unknown key {shown(name)}.", nearest_keys(name))
        found[name] = FileValue(checked(key, value, f"{place}: {name}"), place)
    return found


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
        if len(raw) > MOST_BYTES:
            raise ConfigError(f"{path}: a configuration has at most {MOST_BYTES // 1024} KiB.")
        return raw.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start}).") from error
    except (OSError, ValueError) as error:
        if isinstance(error, RequestError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"Cannot read the configuration {str(path)[:200]!r}: {reason}.") from error


def _flat(table: Mapping[str, Any], text: str, path: Path) -> list[tuple[str, Any]]:
    """Dotted paths and values; only sections may be tables."""
    found: list[tuple[str, Any]] = []
    for name, value in table.items():
        if name in sections():
            if not isinstance(value, Mapping):
                raise ConfigError(f"{_place(path, text, (name,))}: {name} is a section, written [{name}].")
            found += [(f"{name}.{inner}", item) for inner, item in value.items()]
        else:
            found.append((name, value))
    return found


def _place(path: Path, text: str, key: tuple[str, ...]) -> str:
    line = line_of(text, key)
    return f"{path}, line {line}" if line else str(path)


def to_table(config: TrainConfig) -> dict[str, Any]:
    """The configuration as nested tables of what TOML and JSON know; what is None is left out."""
    table: dict[str, Any] = {}
    for key in keys().values():
        holder = getattr(config, key.section) if key.section else config
        value = getattr(holder, key.field)
        if value is None:
            continue
        place = table.setdefault(key.section, {}) if key.section else table
        place[key.name] = _plain(value)
    return table


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def to_toml(config: TrainConfig, *, docs: bool = True) -> str:
    """A file's text with every value, each under its help (`docs`); `read_values` reads it back equal.

    Raises ConfigError where tomli-w is not installed.
    """
    try:
        import tomli_w
    except ImportError as error:
        raise ConfigError("Writing a configuration needs tomli-w: pip install 'meshwright[train]'.") from error
    table, blocks, section = to_table(config), [HEADING], ""
    for key in keys().values():
        if key.section != section:
            section = key.section
            blocks.append(f"\n[{section}]\n")
        place = table[section] if section else table
        if docs and key.doc:
            blocks.append(f"# {key.doc}\n")
        if key.name in place:
            blocks.append(tomli_w.dumps({key.name: place[key.name]}))
        elif docs:
            blocks.append(f"# {key.name} =\n")
    return "".join(blocks)


def save(config: TrainConfig, path: Path) -> None:
    """Write the configuration as a TOML file, whole or not at all. Raises ConfigError where that is not possible."""
    text = to_toml(config)
    try:
        write_atomically(path, text)
    except OSError as error:
        raise ConfigError(f"Cannot write {path}: {error.strerror}.") from error
