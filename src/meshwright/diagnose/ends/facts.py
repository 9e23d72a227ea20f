"""Facts of ends, gathered line by line."""

from __future__ import annotations

from dataclasses import dataclass, field

from meshwright.diagnose.logs.line import Line

MOST = 4096
"""Records of one kind that are kept."""
Place = tuple[str, int | None]
"""A file and a rank in it."""


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception of Python."""

    line: Line
    kind: str
    """Without the modules before it: `KeyError`."""
    said: str
    frame: str
    """The innermost frame outside of installed packages, as Python prints it; "" where none was printed."""
    traced: bool
    """Whether a traceback is above it."""


@dataclass(frozen=True, slots=True)
class Exit:
    """The process that a launcher saw fail first."""

    line: Line
    rank: int | None
    code: int
    """Negative: a signal."""


@dataclass
class Trace:
    """A traceback that is being read."""

    begun: int
    ignored: bool = False
    """Python says itself that it goes on."""
    frame: str = ""


@dataclass
class Ends:
    """Of all processes."""

    raised: list[Raised] = field(default_factory=list)
    exits: list[Exit] = field(default_factory=list)
    limits: list[Line] = field(default_factory=list)
    """Lines by which a scheduler ends a job."""
    cancelled: list[Line] = field(default_factory=list)
    """Those in which it does not say why."""
    crashes: list[Line] = field(default_factory=list)
    """Lines of a shell or a launcher about a process that a signal ended."""
    last: dict[Place, int] = field(default_factory=dict)
    """The number of the last line."""
    open: dict[Place, Trace] = field(default_factory=dict)
    failed: dict[str, int | None] = field(default_factory=dict)
    """Files in which torchrun's report has begun, and the rank that it named last."""

    def died(self) -> set[int]:
        """Ranks that had an error of their own, or that a launcher saw fail first."""
        told = {one.line.rank for one in self.raised} | {one.rank for one in self.exits}
        return {rank for rank in told if rank is not None}
