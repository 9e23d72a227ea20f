"""Runtimes: which of PyTorch, Megatron-LM and DeepSpeed run each layout, as one number a row."""

from __future__ import annotations

import numpy as np

from meshwright.plan.question import Question
from meshwright.spec.columns import LayoutColumns
from meshwright.spec.rules import RUNTIMES
from meshwright.spec.rules.check import RULES
from meshwright.spec.rules.rule import EVERY, Job, is_broken

_OWN_RULES = tuple(rule for rule in RULES if rule.refused_by != EVERY)
"""Rules that some runtime does not enforce; a legal layout breaks no other."""


def runtime_bit(runtime: str) -> int:
    """The bit that stands for a runtime."""
    return 1 << RUNTIMES.index(runtime)


def runtimes_of(question: Question, columns: LayoutColumns, rows: int) -> np.ndarray:
    """Of each of `rows` legal layouts, the bits of the runtimes that run it; 0: each refuses it for another reason."""
    q = question
    job = Job(q.model, q.cluster, q.workload, q.spare)
    bits = np.full(rows, (1 << len(RUNTIMES)) - 1, dtype=np.int64)
    for rule in _OWN_RULES:
        refusing = sum(runtime_bit(name) for name in rule.refused_by)
        bits[is_broken(rule, job, columns, rows)] &= ~refusing
    return bits
