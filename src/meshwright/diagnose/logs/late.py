"""Late: a regular expression that is compiled at its first use, so that a start does not pay for all of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property


class Late:
    """As `re.compile(text)`, later. Only the methods that readers of logs need."""

    def __init__(self, text: str, flags: int = 0) -> None:
        self._text = text
        self._flags = flags

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(self._text, self._flags)

    @cached_property
    def search(self) -> Callable[[str], re.Match[str] | None]:
        """As `re.Pattern.search`."""
        return self._pattern.search

    @cached_property
    def match(self) -> Callable[[str], re.Match[str] | None]:
        """As `re.Pattern.match`."""
        return self._pattern.match

    @cached_property
    def findall(self) -> Callable[[str], list[tuple[str, ...]]]:
        """As `re.Pattern.findall`, of a pattern with several groups."""
        return self._pattern.findall

    @cached_property
    def sub(self) -> Callable[[str, str], str]:
        """As `re.Pattern.sub`."""
        return self._pattern.sub
