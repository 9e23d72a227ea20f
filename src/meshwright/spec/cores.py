"""Cores of the machine that this process may use."""

from __future__ import annotations

import os


def cores() -> int:
    """How many: those that it is bound to, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
