"""Values of the configuration: read from a flag's text, or checked as TOML gives them; nothing is rounded."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from meshwright.spec.errors import RequestError
from meshwright.train.config.keys import Key

_TRUTH = {"true": True, "false": False}
_NOUNS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", Path: "a path"}


class ConfigError(RequestError):
    """A configuration that cannot be read, or that no run could have."""


def from_text(key: Key, text: str, where: str) -> Any:
    """The value that a flag's `text` stands for; items of a list are separated by commas. Raises ConfigError."""
    if key.length is None:
        return checked(key, _scalar(key, text, where), where)
    items = [item.strip() for item in text.split(",")] if text.strip() else []
    if key.single and len(items) == 1:
        return checked(key, _scalar(key, items[0], where), where)
    return checked(key, [_scalar(key, item, where) for item in items], where)


def checked(key: Key, value: Any, where: str) -> Any:
    """`value` in the key's own type, lists as tuples. Raises ConfigError: wrong type, out of range, no such name.

    `where` says where the value stands: `run.toml, line 7: train.steps` or `--train.steps`.
    """
    if value is None and key.optional:
        return None
    if key.length is None or (key.single and not isinstance(value, list | tuple)):
        return _checked_item(key, value, where)
    if not isinstance(value, list | tuple):
        raise _wrong(key, value, where)
    if key.length and len(value) != key.length:
        raise ConfigError(f"{where} must have {key.length} items, not {len(value)}.")
    return tuple(_checked_item(key, item, where) for item in value)


def _checked_item(key: Key, value: Any, where: str) -> Any:
    value = _typed(key, value, where)
    for rule in key.rules:
        if not rule.allows(value):
            raise ConfigError(f"{where} is {shown(value)}.", rule.nearest(value))
    return value


def _typed(key: Key, value: Any, where: str) -> Any:
    """The value, whole numbers as floats where floats are meant. True is no number, 2.0 no whole one."""
    if key.kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if key.kind is Path and isinstance(value, str):
        value = Path(value)
    if not isinstance(value, key.kind) or (isinstance(value, bool) and key.kind is not bool):
        raise _wrong(key, value, where)
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{where} is {value}: it must be finite.")
    if isinstance(value, str) and not value.isascii() and _broken(value):
        raise ConfigError(f"{where} is not UTF-8 text.")
    return value


def _broken(text: str) -> bool:
    """Whether a command line's bytes were no text: Python keeps them as lone surrogates, which no file can hold."""
    return any("\ud800" <= letter <= "\udfff" for letter in text)


def _scalar(key: Key, text: str, where: str) -> Any:
    """A flag's text as the TOML value that it looks like."""
    try:
        if key.kind is bool:
            return _TRUTH[text.lower()]
        if key.kind in (int, float):
            return key.kind(text)
    except (KeyError, ValueError):
        raise _wrong(key, text, where) from None
    return text


def _wrong(key: Key, value: Any, where: str) -> ConfigError:
    noun = _NOUNS[key.kind]
    if key.length is not None:
        several = f"a list of {key.length}, each {noun}" if key.length else f"a list, each item {noun}"
        noun = f"{noun}, or {several}" if key.single else several
    legal = tuple(word for rule in key.rules for word in rule.nearest(value))
    return ConfigError(f"{where} must be {noun}, not {shown(value)}.", legal)


def shown(value: Any) -> str:
    """A value in an error message, cut short."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print integers of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "…"
