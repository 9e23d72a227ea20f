"""Sequence length and batch of a job that names neither.

Batches in tokens a step grow with the model: 0.5 M up to 1.3e9 parameters, 1 M at 2.7e9, 2 M at 6.7e9 and 13e9 and
3.2 M at 175e9 (GPT-3, arXiv:2005.14165 table 2.1); 4 M for every Llama 2 (arXiv:2307.09288 section 2.2).
"""

from __future__ import annotations

import math

from meshwright.cost.parameters import parameters
from meshwright.spec.cluster import Cluster
from meshwright.spec.model import Model

LONGEST_SEQUENCE = 4096
"""Tokens. Longer contexts are usually trained in a late, short phase (Llama 3, arXiv:2407.21783 section 3.4)."""
BATCHES = ((2e9, 0.5e6), (5e9, 1e6), (20e9, 2e6), (math.inf, 4e6))
"""Parameters up to which a batch of so many tokens is usual."""


def choose_seq_len(model: Model) -> int:
    """The model's longest sequence, at most LONGEST_SEQUENCE tokens."""
    return min(model.max_positions, LONGEST_SEQUENCE)


def choose_global_batch(model: Model, cluster: Cluster, seq_len: int) -> int:
    """Sequences a step: about the usual number of tokens, and a number that many layouts divide.

    The odd part of the number of devices times a power of two, so that data-parallel ranks of any degree divide it
    as far as they go into it; a multiple of the devices unless that is more than twice the usual batch.
    """
    total, devices = parameters(model).total, cluster.devices
    usual = next(tokens for limit, tokens in BATCHES if total <= limit) / seq_len
    twos = devices & -devices
    odd = devices // twos
    power = 1 << round(math.log2(max(usual / odd, 1.0)))
    return odd * (max(power, twos) if devices <= 2 * usual else power)
