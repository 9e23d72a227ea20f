"""What goes wrong with checkpoints, said to a person."""

from __future__ import annotations

from meshwright.spec.errors import RequestError


class CheckpointError(RequestError):
    """A checkpoint that cannot be written, is missing or damaged, or does not fit the model."""
