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
            raise ConfigError(f"{_culprit(error, section, places or {})}: {error}") from error
    return _derived(TrainConfig(**top))


def _by_section(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    given: dict[str, dict[str, Any]] = {}
    for path, value in values.items():
        key = keys().get(path)
        if key is None:
            raise ConfigError(f"There is no key {shown(path)}.", nearest_keys(path))
        given.setdefault(key.section, {})[key.field] = checked(key, value, path)
    return given


def _culprit(error: RequestError, section: str, places: Mapping[str, str]) -> str:
    """Where the value that a section refuses was written: the key that the message names, else the section."""
    for path, place in places.items():
        name = path.removeprefix(f"{section}.")
        if name != path and re.search(rf"\b{re.escape(name)}\b", str(error)):
            return place
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
