"""The configuration of a run: defaults, then one TOML file, then flags; the later one wins."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from meshwright.spec.errors import RequestError
from meshwright.train.config.keys import keys, nearest_keys, sections
from meshwright.train.config.toml_file import read_values
from meshwright.train.config.tree import DERIVED, TrainConfig
from meshwright.train.config.values import ConfigError, checked, from_text, shown


def read_config(file: str | Path | None = None, flags: Mapping[str, str] | None = None) -> TrainConfig:
    """The configuration that the sources give together; `flags` maps dotted paths to their texts.

    Paths in it are relative to the working directory, wherever the file lies. Raises ConfigError: what, where, legal.
    """
    values, places = dict[str, Any](), dict[str, str]()
    if file is not None:
        for path, found in read_values(Path(file)).items():
            values[path], places[path] = found.value, found.place
    for path, text in (flags or {}).items():
        if path not in keys():
            raise ConfigError(f"There is no flag --{path[:60]}.", [f"--{near}" for near in nearest_keys(path)])
        values[path], places[path] = from_text(keys()[path], text, f"--{path}"), f"--{path}"
    return with_values(TrainConfig(), values, places)


def with_values(config: TrainConfig, values: Mapping[str, Any], places: Mapping[str, str] | None = None) -> TrainConfig:
    """`config` with some values, by dotted path, in their place; `places` says where each was written.

    Raises ConfigError for unknown paths, and for values that are impossible by themselves or together.
    """
    given = _by_section(values)
    top = {key.field: getattr(config, key.field) for key in keys().values() if not key.section} | given.pop("", {})
    for section, kind in sections().items():
        current = getattr(config, section)
        fields = {key.field: getattr(current, key.field) for key in keys().values() if key.section == section}
        try:
            top[section] = kind(**fields | given.get(section, {}))
        except RequestError as error:
            culprit = _culprit(error, section, values)
            raise ConfigError(f"{(places or {}).get(culprit, culprit)}: {error}") from error
    return _derived(TrainConfig(**top))


def _by_section(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    given: dict[str, dict[str, Any]] = {}
    for path, value in values.items():
        key = keys().get(path)
        if key is None:
            raise ConfigError(f"There is no key {shown(path)}.", nearest_keys(path))
        given.setdefault(key.section, {})[key.field] = checked(key, value, path)
    return given


def _culprit(error: RequestError, section: str, values: Mapping[str, Any]) -> str:
    """The key that a section's message names, or whose text it quotes; else the section."""
    for path, value in values.items():
        name = path.removeprefix(f"{section}.")
        quoted = isinstance(value, str) and repr(value) in str(error)
        if name != path and (quoted or re.search(rf"\b{re.escape(name)}\b", str(error))):
            return path
    return f"[{section}]"


def _derived(config: TrainConfig) -> TrainConfig:
    """Fields of sections that take the value of another key."""
    for target, source in DERIVED.items():
        key = keys()[source]
        value = getattr(getattr(config, key.section) if key.section else config, key.field)
        section, field = target.split(".")
        config = replace(config, **{section: replace(getattr(config, section), **{field: value})})
    return config


def check_config(config: TrainConfig) -> None:
    """Raises ConfigError when a value of a configuration made in Python has the wrong type or range."""
    for key in keys().values():
        holder = getattr(config, key.section) if key.section else config
        checked(key, getattr(holder, key.field), key.path)
