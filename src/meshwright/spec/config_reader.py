"""Typed reading of an untrusted configuration: every refusal says what, where and what is legal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from meshwright.spec.errors import ModelError

LARGEST = 10_000_000
"""Above any layer, width or vocabulary that exists; beyond it a number is a typing error."""


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

    def integer(self, *keys: str, default: int | None = None, smallest: int = 1) -> int:
        """A whole number of at least `smallest`; without a default a missing key is noted and `smallest` returned."""
        key, value = self.find(*keys)
        if value is None:
            if default is not None:
                return default
            self.missing.append(" or ".join(keys))
            return smallest
        return self._checked(key, value, smallest)

    def _checked(self, key: str, value: Any, smallest: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(key, value, f"a whole number of at least {smallest}")
        if isinstance(value, float) and (not math.isfinite(value) or value != int(value)):
            raise self.error(key, value, f"a whole number of at least {smallest}")
        if not smallest <= value <= LARGEST:
            raise self.error(key, value, f"a whole number from {smallest} to {LARGEST}")
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

    def sequence(self, key: str, kind: type, what: str) -> tuple[Any, ...]:
        """A list whose members are all of one type; absent: empty."""
        value = self.config.get(key)
        if value is None:
            return ()
        if not isinstance(value, list | tuple) or not all(isinstance(v, kind) and v is not True for v in value):
            raise self.error(key, value, what)
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
    """A value as it is shown in a message: one line, 60 characters at most."""
    shown = repr(value) if not isinstance(value, int) or abs(value) < 10**30 else "a very large number"
    return shown if len(shown) <= 60 else shown[:57] + "..."
