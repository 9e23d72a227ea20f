"""What a value of the configuration may be, as annotations of its field: a range, or one of some names."""

from __future__ import annotations

import math
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any

MOST = 2**40
"""The largest count; more is a slip of the keyboard."""


@dataclass(frozen=True, slots=True)
class Between:
    """A finite number from `least` to `most`."""

    least: float
    most: float = math.inf

    def allows(self, value: Any) -> bool:
        """Whether the number is in range; NaN never is."""
        return bool(self.least <= value <= self.most)

    def nearest(self, value: Any) -> tuple[str, ...]:
        """The range in words."""
        low = f"{self.least:,g}"
        return (f"from {low}",) if self.most in (math.inf, MOST) else (f"{low} to {self.most:,g}",)


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of some names."""

    names: tuple[str, ...]

    def allows(self, value: Any) -> bool:
        """Whether it is one of them."""
        return value in self.names

    def nearest(self, value: Any) -> tuple[str, ...]:
        """All of a few; of many those that look like `value`, or all of them."""
        if len(self.names) <= 6:
            return self.names
        return tuple(get_close_matches(str(value)[:40].lower(), self.names, n=3, cutoff=0.5)) or self.names


Rule = Between | OneOf

Positive = Annotated[int, Between(1, MOST)]
"""A count of at least one."""
Count = Annotated[int, Between(0, MOST)]
"""A count; 0 often means none."""
