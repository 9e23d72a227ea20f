"""Synthetic tokens: each sample drawn from a generator keyed by (seed, sample), so that none is stored."""

from __future__ import annotations

import math

import numpy as np

from meshwright.train.data.windows import Window

SAMPLES = 2**40
"""Enough that no run sees one twice."""
CHAIN_TOKENS = 256
FOLLOWS = 0.9
"""How often a chain goes on; a model's loss tends to `chain_entropy`."""


class SyntheticWindows:
    """Uniform random tokens, or a chain: a random cycle of tokens that is followed, with random jumps.

    With `documents`, a sample is cut in one to four documents at random places.
    """

    skips = False

    def __init__(self, vocab: int, seq_len: int, seed: int, *, chain: bool, documents: bool) -> None:
        self.vocab, self.seq_len, self.seed, self.chain, self._documents = vocab, seq_len, seed, chain, documents
        n = min(vocab, CHAIN_TOKENS)
        # Which tokens the cycle goes through, and in which order: the ranks of random numbers.
        self._cycle = np.argsort(_numbers(seed, SAMPLES, n), kind="stable")

    def __len__(self) -> int:
        return SAMPLES

    def window(self, index: int) -> Window:
        """The window at `index`: the same numbers on every machine."""
        n = self.seq_len + 1
        raw = _numbers(self.seed, index, 2 * n + 4)
        tokens = self._chain(raw[:n], raw[n : 2 * n]) if self.chain else _below(raw[:n], self.vocab)
        documents = None
        if self._documents:
            cuts = np.sort(_below(raw[2 * n + 1 :], n))[: int(_below(raw[2 * n : 2 * n + 1], 4)[0])]
            documents = np.searchsorted(np.unique(cuts[cuts > 0]), np.arange(n), "right").astype(np.int64)
        return Window(tokens, documents)

    def _chain(self, places: np.ndarray, jumps: np.ndarray) -> np.ndarray:
        n = len(self._cycle)
        jumped = _below(jumps, 2**32) >= FOLLOWS * 2**32
        jumped[0] = True
        last = np.maximum.accumulate(np.where(jumped, np.arange(len(jumped)), 0))
        # The place in the cycle at the last jump, plus the steps since.
        return self._cycle[(_below(places, n)[last] + np.arange(len(last)) - last) % n]

    @property
    def identity(self) -> str:
        """What the numbers depend on."""
        return f"synthetic{':chain' if self.chain else ''} {self.vocab} {self.seed}"

    def describe(self) -> str:
        """In words, with the loss that nothing can beat."""
        if not self.chain:
            return f"synthetic: uniform over {self.vocab:,} tokens; no loss below {math.log(self.vocab):.4f}"
        floor = chain_entropy(len(self._cycle))
        return f"synthetic: a chain of {len(self._cycle):,} tokens followed {FOLLOWS:.0%}; no loss below {floor:.4f}"


def chain_entropy(tokens: int) -> float:
    """Entropy in nats of a chain's next token: the cycle's, by rule or by a jump, or any other, by a jump."""
    jump = (1 - FOLLOWS) / tokens
    follow = FOLLOWS + jump
    return -follow * math.log(follow) - (tokens - 1) * (jump * math.log(jump) if tokens > 1 else 0.0)


def _numbers(seed: int, index: int, count: int) -> np.ndarray:
    """uint64 [count] of Philox (Salmon and others, SC 2011), a function of seed and index alone."""
    return np.random.Philox(key=np.array([seed, index], dtype=np.uint64)).random_raw(count)


def _below(raw: np.ndarray, bound: int) -> np.ndarray:
    """int64 in [0, bound), bound ≤ 2^32, from 64 random bits; the bias is bound / 2^32."""
    return ((raw >> np.uint64(32)) * np.uint64(bound) >> np.uint64(32)).astype(np.int64)
