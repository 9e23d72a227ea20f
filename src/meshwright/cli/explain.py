"""`meshwright explain`: the accounts behind the numbers, with the reader's own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meshwright.cli.options import JsonOption, complete_cluster, complete_model, one_of
from meshwright.cli.screen import console, print_json
from meshwright.cli.tables import table
from meshwright.plan.explain.options import OPTIONS, flag
from meshwright.plan.explain.topics import TOPICS

if TYPE_CHECKING:
    from rich.console import Console

    from meshwright.plan.explain.page import Page

EXAMPLES = (
    "meshwright explain",
    "meshwright explain zero --parameters 7.1e9 --ranks 8",
    "meshwright explain bubble --stages 8 --micro-batches 32",
    "meshwright explain tp --model llama-2-7b --cluster 8xA100-40GB --layout 'tp8 mbs2'",
)
WIDTH = 110
"""Columns of a page: prose in longer lines is hard to read."""


def _takes_numbers(answer: Callable[..., int]) -> Callable[..., int]:
    """`answer(…, numbers)` as a function that takes each of OPTIONS by name, which Typer can read."""
    own = [p for p in inspect.signature(answer, eval_str=True).parameters.values() if p.name != "numbers"]
    by_name = inspect.Parameter.KEYWORD_ONLY
    read = [
        inspect.Parameter(name, by_name, default=None, annotation=Annotated[str | None, _typer_option(name)])
        for name in OPTIONS
    ]

    @functools.wraps(answer)
    def spread(**values: Any) -> int:
        numbers = {name: text for name in OPTIONS if (text := values.pop(name)) is not None}
        return answer(**values, numbers=numbers)

    parameters = [*(parameter.replace(kind=by_name) for parameter in own), *read]
    spread.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    spread.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return spread


def _typer_option(name: str) -> Any:
    option = OPTIONS[name]
    completion = one_of(option.names) if option.names else None
    return typer.Option(
        metavar=option.metavar, help=option.help, autocompletion=completion, rich_help_panel="Your numbers"
    )


@_takes_numbers
def answer(
    topic: Annotated[
        str | None,
        typer.Argument(metavar="TOPIC", help="What to explain.", autocompletion=one_of(tuple(TOPICS))),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Take its numbers.", autocompletion=complete_model)
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="CLUSTER", help="Take its numbers.", autocompletion=complete_cluster)
    ] = None,
    layout: Annotated[
        str | None, typer.Option(metavar="LAYOUT", help="Take its degrees, and price the whole job.")
    ] = None,
    as_json: JsonOption = False,
    *,
    numbers: dict[str, str],
) -> int:
    """Explain a way of splitting, or a number, with yours worked through.

    Without TOPIC: list the topics. Each topic reads a few of the numbers and has defaults for them.
    """
    from meshwright.plan.explain import explain
    from meshwright.spec.cluster_text import parse_cluster
    from meshwright.spec.errors import RequestError
    from meshwright.spec.model_config import load_model
    from meshwright.spec.notation import parse_layout

    if topic is None:
        if numbers or model or cluster or layout:
            raise RequestError("Name a topic.", tuple(TOPICS))
        return _list(as_json)
    page = explain(
        topic,
        numbers,
        model=load_model(model) if model is not None else None,
        cluster=parse_cluster(cluster) if cluster is not None else None,
        layout=parse_layout(layout) if layout is not None else None,
    )
    if as_json:
        print_json({"topic": page.topic, "title": page.title, "numbers": page.numbers, "sources": page.sources})
    else:
        _show(page)
    return 0


def _list(as_json: bool) -> int:
    if as_json:
        rows = [{"topic": t.name, "summary": t.summary, "options": list(t.options)} for t in TOPICS.values()]
        print_json({"topics": rows})
    else:
        console().print(table(("topic", "what it explains"), [(t.name, t.summary) for t in TOPICS.values()]))
    return 0


def _show(page: Page) -> None:
    from rich.padding import Padding
    from rich.text import Text

    screen = console()
    width = min(WIDTH, screen.width)
    screen.print(Text(page.title, style="bold"))
    for section in page.sections:
        screen.print(Text(f"\n{section.heading}", style="bold"))
        for line in section.lines:
            screen.print(Padding(Text(line), (0, 0, 0, 2), expand=False), width=width)
        if section.table is not None:
            _show_table(screen, section.table.columns, section.table.rows)
    reads = ", ".join(flag(name) for name in TOPICS[page.topic].options) or "--layout"
    for heading, lines in (("Sources", page.sources), ("Put in your own", (reads,))):
        screen.print(Text(f"\n{heading}", style="bold"))
        for line in lines:
            screen.print(Padding(Text(line), (0, 0, 0, 2), expand=False), width=width)


def _show_table(screen: Console, columns: tuple[str, ...], rows: tuple[tuple[str, ...], ...]) -> None:
    from rich.padding import Padding

    screen.print()
    screen.print(Padding(table(columns, rows), (0, 0, 0, 2), expand=False))
