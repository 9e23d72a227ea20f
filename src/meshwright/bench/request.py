"""Request: which layouts, on which work, measured how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from meshwright.bench.case import Case
from meshwright.spec.errors import LayoutError, RequestError
from meshwright.spec.layout import Layout
from meshwright.spec.notation import format_layout, parse_layout, parse_layouts

SWEPT = {"mbs": "mbs{}", "ac": "ac:{}"}
"""What `--sweep NAME=VALUES` may vary, as a token of the layout."""


@dataclass(frozen=True, slots=True)
class Request:
    """One bench. The rows differ in layout and in nothing else."""

    layouts: tuple[str, ...]
    """Of the rows, as they are printed, which is what the rows are called."""
    flags: Mapping[str, str]
    """Of `meshwright train`, for all rows: model, sequence length, global batch, precision, data, …."""
    steps: int = 10
    warm_up: int = 3
    traced: int = 2
    repeats: int = 2
    baseline: str = ""
    """Label of the row that the others are compared with."""
    one_process: bool = True
    """Run the same work in one process, too, for the loss."""
    seed: int = 0
    """Of the order of the runs."""
    timeout_s: float = 900.0
    """Of one run."""

    def case(self, layout: str, folder: str, repeat: int) -> Case:
        """One run of a row; only the first repeat is traced."""
        flags = {**self.flags, "layout": layout, "run": folder}
        return Case(flags, self.steps, self.warm_up, self.traced if repeat == 0 else 0)


def layouts_of(texts: Sequence[str], sweeps: Sequence[str]) -> tuple[str, ...]:
    """Rows from lists of layouts, each under every combination of the sweeps ("mbs=1,2,4").

    As they are printed, each once. Raises LayoutError and RequestError: what cannot be read, or is empty.
    """
    found = [layout for text in texts if text.strip() for layout in parse_layouts(text)]
    if not found:
        raise LayoutError("No layout is given.", ["--layouts 'ddp2, fsdp2'"])
    for sweep in sweeps:
        name, _, values = sweep.partition("=")
        token = SWEPT.get(name.strip().lower())
        words = [word.strip() for word in values.split(",") if word.strip()]
        if token is None or not words:
            raise RequestError(
                f"--sweep {sweep[:60]!r} names nothing that can be varied.", ["mbs=1,2,4", "ac=none,full"]
            )
        found = [_with(layout, token.format(word)) for layout in found for word in words]
    return tuple(dict.fromkeys(format_layout(layout) for layout in found))


def _with(layout: Layout, token: str) -> Layout:
    """`layout` with what one token says."""
    said = parse_layout(f"ddp1 {token}")
    return (
        replace(layout, micro_batch=said.micro_batch)
        if token.startswith("mbs")
        else replace(layout, recompute=said.recompute)
    )
