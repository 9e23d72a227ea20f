"""Order: which sample comes when, as arithmetic on sample numbers; nothing is stored, however many there are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

ROUNDS = 8
_MASK = 2**64 - 1


@dataclass(frozen=True)
class EpochOrder:
    """The endless order of `samples` samples: epoch after epoch, each sample once in each, each in another order."""

    samples: int
    seed: int = 0
    shuffle: bool = True

    def ids(self, start: int, count: int) -> np.ndarray:
        """Sample ids [count], int64, at places start, start + 1, … of the endless order."""
        parts = []
        while count:
            epoch, first = divmod(start, self.samples)
            n = min(count, self.samples - first)
            places = np.arange(first, first + n, dtype=np.uint64)
            key = _mix(_mix(self.seed) ^ (epoch + 1))
            parts.append(
                permuted(places, self.samples, key).astype(np.int64) if self.shuffle else places.view(np.int64)
            )
            start, count = start + n, count - n
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def permuted(places: np.ndarray, size: int, key: int) -> np.ndarray:
    """Images of `places` (uint64, each < size) under the permutation of range(size) that `key` picks.

    A Feistel network permutes the next power of four; what falls outside is sent through it again until it falls
    inside ("cycle walking", Black and Rogaway, Ciphers with Arbitrary Finite Domains, 2002, section 3 and 4).
    """
    half = max(1, ((size - 1).bit_length() + 1) // 2)
    keys = [np.uint64(_mix(key + i)) for i in range(ROUNDS)]
    out = _feistel(places, half, keys)
    while (outside := out >= np.uint64(size)).any():
        out[outside] = _feistel(out[outside], half, keys)
    return out


def _feistel(x: np.ndarray, half: int, keys: list[np.uint64]) -> np.ndarray:
    low, shift = np.uint64(2**half - 1), np.uint64(half)
    left, right = x >> shift, x & low
    for key in keys:
        left, right = right, left ^ (_mixed(right ^ key) & low)
    return left << shift | right


def _mixed(x: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): every output bit depends on every input bit."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = x ^ (x >> np.uint64(31))
    return mixed


def _mix(x: int) -> int:
    """The next number of SplitMix64 after state x."""
    return int(_mixed(np.array([(x + 0x9E3779B97F4A7C15) & _MASK], dtype=np.uint64))[0])


@dataclass(frozen=True)
class Split:
    """`total` windows in two parts: every (total / held_out)-th is held out, in order; the others train, in order."""

    total: int
    held_out: int

    def training(self, index: int) -> int:
        """The window of training sample `index`, 0 ≤ index < total - held_out.

        Window group g is [⌊g·n/v⌋, ⌊(g+1)·n/v⌋), its last window is held out, so group g starts at training sample
        ⌊g·(n-v)/v⌋ and the window is the index plus the group.
        """
        return index + ((index + 1) * self.held_out - 1) // (self.total - self.held_out) if self.held_out else index

    def validation(self, index: int) -> int:
        """The window of held-out sample `index`, 0 ≤ index < held_out."""
        return (index + 1) * self.total // self.held_out - 1
