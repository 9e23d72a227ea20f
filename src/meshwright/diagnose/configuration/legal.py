"""Legal values, in words.

The rules of `meshwright.spec.rules` are numpy's, so they are imported when something is wrong and not before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

LARGEST = 10**7
"""Numbers above are not searched for divisors: no count of heads, layers or ranks is so large."""


def common(*numbers: int) -> tuple[int, ...]:
    """The divisors that all of these positive numbers share, ascending; of zeros nothing is asked."""
    from math import gcd

    from meshwright.spec.rules.rule import divisors

    shared = gcd(*numbers)
    return divisors(shared) if 0 < shared <= LARGEST else ()


def listed(numbers: Iterable[int], most: int = 12) -> str:
    """`1, 2, 4`."""
    values = list(numbers)
    return ", ".join(map(str, values[:most])) + (", …" if len(values) > most else "")


def neighbours(wanted: int, step: int) -> tuple[int, ...]:
    """The multiples of `step` nearest to `wanted`, nearest first."""
    low = wanted // step * step
    both = (one for one in (low, low + step) if one > 0)
    return tuple(sorted(both, key=lambda one: abs(one - wanted)))


def tensor_degrees(heads: int, kv_heads: int, fit: int = 0) -> Sequence[int]:
    """Tensor degrees that divide heads and key/value heads (and `fit`, where it is known)."""
    return common(*(one for one in (heads, kv_heads, fit) if one > 0))
