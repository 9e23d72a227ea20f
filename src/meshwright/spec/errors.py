"""What a wrong request looks like: one message that says what, where and what is legal."""

from __future__ import annotations


class RequestError(ValueError):
    """The request is wrong. The command line prints the message and exits with 2.

    `legal` holds the nearest legal values, best first; they are appended to the message.
    """

    def __init__(self, message: str, legal: tuple[str, ...] | list[str] = ()) -> None:
        self.legal = tuple(str(value) for value in legal)
        super().__init__(message + (f" Legal: {', '.join(self.legal)}." if self.legal else ""))


class ModelError(RequestError):
    """A model that cannot be read."""


class ClusterError(RequestError):
    """A cluster that cannot be read."""


class WorkloadError(RequestError):
    """A workload with impossible numbers."""


class LayoutError(RequestError):
    """A layout that cannot be read, or that no runtime could run."""
