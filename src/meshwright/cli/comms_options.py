"""The command line of `meshwright comms` as a value: what to measure, and the words that ranks are started with."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.bench.comms.session import Wish

MOST_BYTES = 2**36


@dataclass(frozen=True, slots=True)
class Options:
    """The command line, as the ranks that it starts get it again."""

    ranks: int | None = None
    layout: str | None = None
    op: str | None = None
    min_bytes: str = "8B"
    max_bytes: str | None = None
    seconds: float = 60.0
    iterations: int | None = None
    compute: bool = False
    device: str = "auto"
    backend: str = "auto"
    device_name: str | None = None
    implementation: str = "eager"
    out: Path | None = None
    force: bool = False
    json: bool = False

    def arguments(self) -> list[str]:
        """The same as words of a command line, but for `ranks`."""
        words: list[str] = []
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None or value is False or field.name == "ranks":
                continue
            words += [f"--{field.name.replace('_', '-')}", *([] if value is True else [str(value)])]
        return words


def wish_of(options: Options) -> Wish:
    """What the ranks measure. Raises RequestError: a size, an operation or a layout that cannot be."""
    from meshwright.bench.comms.measure import Effort
    from meshwright.bench.comms.session import Wish
    from meshwright.spec.collective import OPERATIONS
    from meshwright.spec.errors import RequestError
    from meshwright.spec.notation import parse_layout

    layout = parse_layout(options.layout) if options.layout is not None else None
    least = _bytes(options.min_bytes, "--min-bytes")
    most = _bytes(options.max_bytes, "--max-bytes") if options.max_bytes is not None else None
    if most is not None and most < least:
        raise RequestError(f"--max-bytes {options.max_bytes} is less than --min-bytes {options.min_bytes}.")
    operations = operations_of(options.op) if options.op is not None else OPERATIONS
    effort = Effort(options.seconds, options.iterations)
    return Wish(layout, operations, least, most, effort, options.device, options.backend)


def _bytes(text: str, flag: str) -> int:
    """A size with a unit, or a whole number of bytes. Raises RequestError."""
    from meshwright.spec.errors import RequestError
    from meshwright.spec.units import UnitError, parse_bytes

    try:
        size = int(text) if text.strip().isdecimal() else int(parse_bytes(text))
    except UnitError as error:
        raise RequestError(f"{flag}: {error}") from error
    if not 1 <= size <= MOST_BYTES:
        raise RequestError(f"{flag} is {text!r}.", ("8B", "16MiB", "1GiB"))
    return size


def operations_of(text: str) -> tuple[str, ...]:
    """The operations that a list names. Raises RequestError with the legal ones."""
    from meshwright.spec.collective import OPERATIONS
    from meshwright.spec.errors import RequestError

    names = tuple(dict.fromkeys(name.strip().lower().replace("_", "-") for name in text.split(",") if name.strip()))
    for name in names:
        if name not in OPERATIONS:
            raise RequestError(f"--op: there is no operation {name[:40]!r}.", OPERATIONS)
    if not names:
        raise RequestError("--op names no operation.", OPERATIONS)
    return names
