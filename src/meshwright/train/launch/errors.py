"""What is wrong with how ranks were started."""

from __future__ import annotations

from meshwright.spec.errors import RequestError


class LaunchError(RequestError):
    """Ranks that cannot be what was asked: a contradictory environment, a world that does not match, missing GPUs."""
