"""Typed reading of an untrusted configuration: every refusal says what, where and what is legal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshwright.spec.errors import ModelError

LARGEST = 100_000_000
"""Above any width, vocabulary or context that exists; a number beyond it is a slip of the pen."""


class ConfigReader:
    """Reads a mapping key by key. A key may have several names; `null` counts as absent.

    Missing keys are collected, so that `finish` can name all of them at once.
    """

    def __init__(self, config: Mapping[str, Any], where: str) -> None:
        self.config = config
        self.where = where
        self.missing: list[str] = []
        self.warnings: list[str] = []

    def find(self, *keys: str) -> tuple[str, Any]:
        """The first key that is present with its value, or the first key and None."""
        for key in keys:
            if self.config.get(key) is not None:
                return key, self.config[key]
        return keys[0], None

    def integer(self, *keys: str, default: int | None = None, smallest: int = 1, largest: int = LARGEST) -> int:
        """A whole number in the given range; without a default a missing key is noted and `smallest` returned."""
        key, value = self.find(*keys)
        if value is None:
            if default is not None:
                return default
            self.missing.append(keys[0])
            return smallest
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not smallest <= value <= largest or value != int(value):
            raise self.error(key, value, f"a whole number from {smallest} to {largest}")
        return int(value)

    def boolean(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.config.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(key, value, "true or false")
        return value

    def text(self, key: str, default: str = "") -> str:
        """A string."""
        value = self.config.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.error(key, value, "a string")
        return value

    def strings(self, key: str) -> tuple[str, ...]:
        """A list of strings; absent: empty."""
        value = self.config.get(key)
        if value is None:
            return ()
        if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
            raise self.error(key, value, "a list of strings")
        return tuple(value)

    def integers(self, key: str) -> tuple[int, ...]:
        """A list of whole numbers from 0; absent: empty."""
        value = self.config.get(key)
        if value is None:
            return ()
        if not isinstance(value, list | tuple) or not all(type(v) is int and v >= 0 for v in value):
            raise self.error(key, value, "a list of whole numbers from 0")
        return tuple(value)

    def section(self, key: str) -> ConfigReader:
        """A nested object (empty where absent), whose missing keys and warnings are reported here."""
        value = self.config.get(key)
        if value is None:
            value = {}
        if not isinstance(value, Mapping):
            raise self.error(key, value, "an object")
        inner = ConfigReader(value, f"{self.where}, {key}")
        inner.missing, inner.warnings = self.missing, self.warnings
        return inner

    def error(self, key: str, value: Any, legal: str) -> ModelError:
        """The refusal of one value."""
        return ModelError(f"{self.where}: {key} is {shorten(value)}, but must be {legal}.")

    def finish(self) -> None:
        """Raise ModelError naming every key that was asked for and is not there."""
        if self.missing:
            raise ModelError(f"{self.where}: missing {', '.join(dict.fromkeys(self.missing))}.")


def shorten(value: Any) -> str:
    """A value as a message shows it: one line, 60 characters at most."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, int) and abs(value) >= 10**30:
        return "a number of more than 30 digits"
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
