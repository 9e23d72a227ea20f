"""Which pipeline rank holds which stage."""

from __future__ import annotations

V_SHAPED = ("zbvzerobubble", "dualpipev")
"""Schedules whose stages go down the ranks and up again: the first and the last stage share rank 0."""


def placement(schedule: str, pipeline: int, virtual_stages: int = 1) -> list[int]:
    """The rank of each stage, in model order: round and round, or down and up for V-shaped schedules."""
    loop = list(range(pipeline))
    return loop + loop[::-1] if schedule in V_SHAPED else loop * virtual_stages
