"""`meshwright check`: each layout computes what one process computes, or it says what differs and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from meshwright.cli.options import JsonOption, one_of
from meshwright.cli.screen import console, print_error, print_json, progress_line

if TYPE_CHECKING:
    from meshwright.check.case import Case
    from meshwright.check.result import CheckResult, LayoutResult
    from meshwright.spec.layout import Layout

EXAMPLES = (
    "meshwright check",
    "meshwright check --layouts 'ddp4, fsdp2 tp2, pp4:{gpipe,1f1b,zbvzerobubble}'",
    "meshwright check --layouts all --model tiny-mixtral",
    "meshwright check --layouts 'fsdp2 tp2 pp2:1f1b' --ranks 8 --dtype float32 --json",
)
DEFAULT = "ddp2, zero1:2, zero2:2, fsdp2, tp2, cp2, pp2:1f1b"
DTYPES = ("float64", "float32")
COLUMNS = tuple("layout verdict >loss >norm >gradient >update copies >parameters >sent traffic >s why".split())
NARROW = ("s", "parameters", "copies", "traffic", "sent", "update", "norm")


def answer(
    layouts: Annotated[
        str,
        typer.Option(
            metavar="LAYOUTS",
            help="Layouts, separated by commas; braces list alternatives; 'all': every mode and every pair of modes.",
        ),
    ] = DEFAULT,
    model: Annotated[
        str, typer.Option(metavar="MODEL", help="A small preset, or the path of a config.json.")
    ] = "tiny-llama",
    dtype: Annotated[
        str, typer.Option(metavar="NAME", help="float64 (≤ 1e-9) or float32 (≤ 1e-5).", autocompletion=one_of(DTYPES))
    ] = "float64",
    ranks: Annotated[
        int, typer.Option(metavar="N", min=1, help="With 'all': ranks at most; 8 adds layouts of three axes.")
    ] = 4,
    seq_len: Annotated[int, typer.Option(metavar="N", min=2, help="Tokens a sequence.")] = 32,
    global_batch: Annotated[int, typer.Option(metavar="N", min=1, help="Sequences a step.")] = 16,
    steps: Annotated[int, typer.Option(metavar="N", min=1, help="Optimizer steps.")] = 3,
    optimizer: Annotated[
        str, typer.Option(metavar="NAME", help="adamw or sgd.", autocompletion=one_of(("adamw", "sgd")))
    ] = "adamw",
    as_json: JsonOption = False,
) -> int:
    """Prove that layouts compute what one process computes.

    One plain process and each layout train from the same weights on the same batches, with uneven loss masks, once with
    one micro-batch and once with more. Loss, gradient norm, every gradient, every update, every copy and the bytes sent
    are compared. A difference that explains itself is named.

    Runs on CPU ranks of this machine. Exit code 1: a layout differs.
    """
    from meshwright.check.case import Case
    from meshwright.spec.errors import RequestError

    for name, value, legal in (("--dtype", dtype, DTYPES), ("--optimizer", optimizer, ("adamw", "sgd"))):
        if value not in legal:
            raise RequestError(f"{name} is {value!r}.", legal)
    case = Case(model, dtype, seq_len, global_batch, steps, optimizer=optimizer)
    wanted = _wanted(case, layouts, ranks)
    from meshwright.check.sweep import check_layouts

    with progress_line("layouts checked") as show:
        found = check_layouts(case, wanted, show)
    if as_json:
        print_json(_document(found))
    else:
        _show(found)
    return 0 if found.passed else 1


def _wanted(case: Case, text: str, ranks: int) -> list[Layout]:
    """The layouts to check. Raises LayoutError for one that could not run, before any rank starts."""
    from meshwright.check.every import every_layout
    from meshwright.check.legality import check_legal, check_size
    from meshwright.spec.notation import parse_layouts
    from meshwright.train.config.models import model_to_train

    spec = model_to_train(case.model)
    check_size(spec)
    if text.strip().lower() == "all":
        return every_layout(case, spec, ranks)
    found = list(parse_layouts(text))
    if any(layout.micro_batch > 1 for layout in found):
        print_error(
            "note: check cuts micro-batches itself, once with one and once with more; mbs is left out", label=""
        )
    for layout in found:
        check_legal(case, spec, layout, several=len(found) > 1)
    return found


def _document(found: CheckResult) -> dict[str, Any]:
    return {
        "model": found.model,
        "dtype": found.dtype,
        "parameters": found.parameters,
        "reference": {"loss": list(found.loss), "grad_norm": list(found.grad_norm)},
        "passed": found.passed,
        "layouts": list(found.layouts),
    }


def _show(found: CheckResult) -> None:
    from meshwright.cli.tables import table

    screen = console()
    screen.print(
        f"one process: {found.model} in {found.dtype}, {found.parameters:,} parameters; loss "
        f"{', '.join(f'{x:.6f}' for x in found.loss)}; gradient norm {', '.join(f'{x:.6f}' for x in found.grad_norm)}"
    )
    screen.print(table(COLUMNS, [_cells(one) for one in found.layouts], drop=NARROW))
    passed = sum(one.passed for one in found.layouts)
    tolerance = found.layouts[0].tolerance if found.layouts else 0.0
    screen.print(f"{passed} of {len(found.layouts)} layouts compute what one process computes, within {tolerance:g}.")


def _cells(one: LayoutResult) -> tuple[str, ...]:
    from meshwright.spec.units import binary

    sent = sum(row.bytes for row in one.traffic)
    known = [row for row in one.traffic if row.expected_bytes is not None]
    agrees = all(row.bytes == row.expected_bytes for row in known)
    worst = f" {one.worst_gradient.name}" if not one.passed and one.worst_gradient.name else ""
    return (
        one.layout,
        "same" if one.passed else "DIFFERS",
        f"{one.loss_error:.0e}",
        f"{one.grad_norm_error:.0e}",
        f"{one.worst_gradient.error:.0e}",
        f"{one.worst_update.error:.0e}",
        "same" if one.replicas_identical else "differ",
        f"{one.parameters:,}",
        binary(sent),
        "as formula" if known and agrees else ("–" if not known else "differs"),
        f"{one.seconds:.1f}",
        one.explanation + worst,
    )
