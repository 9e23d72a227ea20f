"""The command `meshwright`: finds the verb, and turns what goes wrong into one line and an exit code.

Exit codes: 0 done, 1 the answer is no, 2 the request is wrong, 130 interrupted, 141 nobody reads the output any more.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated

import typer

from meshwright.cli.screen import print_error
from meshwright.spec.errors import RequestError

VERBS = (
    "plan", "estimate", "backtest", "explain", "models", "clusters", "history", "rehearse", "train", "check", "bench",
    "comms", "report", "diagnose",
)  # fmt: skip
"""Every verb is a module of this package, in the order of the help page."""
NEEDED_TO_TRAIN = ("torch", "safetensors", "tokenizers", "tensorboard", "tomli_w", "filelock")
"""Modules that planning does without: the extra `train` of the package."""
REFUSED, INTERRUPTED, PIPE_CLOSED = 2, 130, 141


def run() -> None:
    """Answer the command line of this process and exit."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    sys.exit(main(sys.argv[1:]))


def main(arguments: Sequence[str]) -> int:
    """Answer one command line; returns the exit code."""
    command = build_app(verbs_to_load(arguments))
    try:
        code = command(args=list(arguments), prog_name="meshwright", standalone_mode=False)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        print_error(error.format_message())
        print_error(f"{context.command_path if context else 'meshwright'} --help shows what is legal.", label="")
        return REFUSED
    except typer.Abort:
        return INTERRUPTED
    return code or 0


def verbs_to_load(arguments: Sequence[str]) -> tuple[str, ...]:
    """The verb that is called, or all of them for help, completion and unknown verbs."""
    named = next((word for word in arguments if not word.startswith("-")), None)
    return (named,) if named in VERBS else VERBS


def build_app(verbs: Sequence[str]) -> typer.Typer:
    """The Typer application with these verbs."""
    app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]}, pretty_exceptions_enable=False)
    app.callback(invoke_without_command=True)(_top)
    for verb in verbs:
        module = import_module(f"meshwright.cli.{verb}")
        app.command(verb, epilog=_examples(module.EXAMPLES))(_guarded(module.answer))
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        from meshwright import __version__

        print(f"meshwright {__version__}")
        raise typer.Exit


def _top(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Plan parallel training: which way of splitting a model over devices fits, and which is fastest."""
    if context.invoked_subcommand is None:
        print(context.get_help())


def _examples(lines: Sequence[str]) -> str:
    """An epilog with one example a line (Typer joins single line breaks)."""
    return "\n\n".join(("Examples:", *(f"  {line}" for line in lines)))


def _guarded(answer: Callable[..., int]) -> Callable[..., int]:
    """`answer` with every foreseeable failure as one line on stderr and an exit code."""

    @functools.wraps(answer)
    def guarded(*args: object, **kwargs: object) -> int:
        try:
            code = answer(*args, **kwargs)
            sys.stdout.flush()
        except RequestError as error:
            print_error(str(error))
            return REFUSED
        except ModuleNotFoundError as error:
            if error.name not in NEEDED_TO_TRAIN:
                raise
            print_error(f"This needs {error.name}, which is not installed here: pip install 'meshwright[train]'.")
            return REFUSED
        except KeyboardInterrupt:
            print_error("interrupted", label="")
            return INTERRUPTED
        except BrokenPipeError:
            # What is still buffered would raise again when the interpreter closes stdout.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return PIPE_CLOSED
        return code

    return guarded
