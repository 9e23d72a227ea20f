"""What a wrong or damaged data set looks like."""

from __future__ import annotations

from meshwright.spec.errors import RequestError


class DataError(RequestError):
    """Data that cannot be read, or that do not fit the model or the batch; names the file and the line."""
