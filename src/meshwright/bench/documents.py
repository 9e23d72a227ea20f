"""A Bench as `results.json` and back: one key a field of `result.py`, nothing renamed.

A number that is not finite is written as the text "nan", "inf" or "-inf", since JSON has no such numbers. The reader
trusts nothing: an unknown version, an unknown, missing or mistyped field, a file cut short or far too large is a
ResultsError that names the place. A field that has a default may be absent.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Any, cast, get_args, get_origin, get_type_hints

from meshwright.bench.result import DONE, FAILED, OUT_OF_MEMORY, REFUSED, TIMED_OUT, VERSION, Bench
from meshwright.spec.errors import RequestError
from meshwright.spec.units import MIB, binary
from meshwright.train.config.files import write_atomically

FILE = "results.json"
LARGEST = 128 * MIB
"""Bytes; a bench of 50 layouts of 100 steps takes about 3 MiB."""
STATUSES = (DONE, OUT_OF_MEMORY, FAILED, TIMED_OUT, REFUSED)
NOT_FINITE = ("nan", "inf", "-inf")


class ResultsError(RequestError):
    """Results of a bench that cannot be read or written."""


def bench_document(bench: Bench) -> dict[str, Any]:
    """The Bench as what JSON knows. Tuples become lists; `work` and `machine` must hold plain JSON values."""
    return cast("dict[str, Any]", _plain(bench))


def bench_from_document(document: Any, where: str = FILE) -> Bench:
    """The Bench that `bench_document` made this of. Raises ResultsError, which names `where` and the field."""
    if not isinstance(document, dict):
        raise ResultsError(f"{where} holds {_told(document)}, not the object that a bench writes.")
    if "version" not in document:
        raise ResultsError(f"{where}: version is missing; these are no results of a bench.")
    version = document["version"]
    if version != VERSION or isinstance(version, bool):
        raise ResultsError(
            f"{where} is of version {_told(version)}, which this Meshwright cannot read.", [f"{VERSION}"]
        )
    try:
        bench = cast("Bench", _read(Bench, document, ""))
        _check_statuses(bench)
    except ResultsError as error:
        raise ResultsError(f"{where}: {error}") from None
    return bench


def results_text(bench: Bench) -> str:
    """The text of `results.json`: a line a field, and a line a row. Raises ResultsError for what JSON cannot hold."""
    try:
        lines = [f'"{key}": {_lines(value)}' for key, value in bench_document(bench).items()]
    except (TypeError, ValueError) as error:
        raise ResultsError(f"These results cannot be written as JSON: {error}.") from error
    return "{\n" + ",\n".join(lines) + "\n}\n"


def write_results(bench: Bench, folder: Path) -> Path:
    """Write `folder/results.json`, whole or not at all; returns its path. Raises ResultsError."""
    path = folder / FILE
    text = results_text(bench)
    try:
        write_atomically(path, text)
    except OSError as error:
        raise ResultsError(f"Cannot write {path}: {error.strerror}.") from error
    return path


def read_results(path: Path) -> Bench:
    """The Bench of a `results.json`, or of the folder that holds one. Raises ResultsError."""
    try:
        file = path / FILE if path.is_dir() else path
        if not file.is_file():
            raise ResultsError(f"There are no results of a bench at {file}.")
        size = file.stat().st_size
        if size > LARGEST:
            raise ResultsError(f"{file} has {binary(size)}; results of a bench have {binary(LARGEST)} at most.")
        document = json.loads(file.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, ResultsError):
            raise
        raise ResultsError(_unreadable(path, error)) from error
    return bench_from_document(document, str(file))


def _unreadable(path: Path, error: Exception) -> str:
    """One line on a file that could not be read, or that is no JSON."""
    if isinstance(error, OSError):
        return f"Cannot read {path}: {error.strerror}."
    if isinstance(error, json.JSONDecodeError):
        return f"{path} is not JSON, or was cut short: {error.msg} in line {error.lineno}, column {error.colno}."
    if isinstance(error, RecursionError):
        return f"{path} is nested too deep for results of a bench."
    return f"{path} is not JSON: {error}."


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _lines(value: Any) -> str:
    """JSON on one line; a list of objects with a line each."""
    dump: Callable[[Any], str] = functools.partial(json.dumps, ensure_ascii=False, allow_nan=False)
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(map(dump, value)) + "\n]"
    return dump(value)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {name: _plain(getattr(value, name)) for name, _, _ in _fields(type(value))}
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


@functools.cache
def _fields(kind: type) -> tuple[tuple[str, Any, bool], ...]:
    """Name, type and whether it must be there, of every field of a dataclass."""
    hints = get_type_hints(kind)
    return tuple(
        (field.name, hints[field.name], field.default is MISSING and field.default_factory is MISSING)
        for field in fields(kind)
    )


def _read(kind: Any, value: Any, where: str) -> Any:
    """`value` as a `kind`: a dataclass, tuple, dict, number, text or one of these or None. Raises ResultsError."""
    if kind is float:
        return _number(value, where)
    if kind is Any:
        return value
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType:
        (inner,) = (argument for argument in arguments if argument is not type(None))
        return None if value is None else _read(inner, value, where)
    if origin is tuple:
        _expect(isinstance(value, list), value, where, "a list")
        return tuple(_read(arguments[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    if origin is dict:
        _expect(isinstance(value, dict), value, where, "an object")
        return {key: _read(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    if is_dataclass(kind):
        return _object(cast("type", kind), value, where)
    _expect(
        isinstance(value, kind) and not isinstance(value, bool), value, where, {int: "a whole number"}.get(kind, "text")
    )
    return value


def _object(kind: type, value: Any, where: str) -> Any:
    """A dataclass from an object with its fields and no others."""
    _expect(isinstance(value, dict), value, where, "an object")
    dot = f"{where}." if where else ""
    names = [name for name, _, _ in _fields(kind)]
    for name in value.keys() - set(names):
        raise ResultsError(f"{dot}{name[:40]} is an unknown field.", get_close_matches(name[:40], names, 3) or names)
    for name, _, needed in _fields(kind):
        if needed and name not in value:
            raise ResultsError(f"{dot}{name} is missing.")
    return kind(**{name: _read(hint, value[name], f"{dot}{name}") for name, hint, _ in _fields(kind) if name in value})


def _number(value: Any, where: str) -> float:
    if isinstance(value, float):
        return value
    if isinstance(value, str) and value in NOT_FINITE:
        return float(value)
    _expect(isinstance(value, int) and not isinstance(value, bool), value, where, "a number")
    _expect(abs(value) < 2**1000, value, where, "a number of this size")
    return float(value)


def _check_statuses(bench: Bench) -> None:
    for index, row in enumerate(bench.rows):
        if row.status not in STATUSES:
            raise ResultsError(f"rows[{index}].status is {_told(row.status)}.", STATUSES)


def _expect(met: bool, value: Any, where: str, what: str) -> None:
    if not met:
        raise ResultsError(f"{where or 'the document'} is {_told(value)}, not {what}.")


def _told(value: Any) -> str:
    """A value in a few characters."""
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    try:
        text = json.dumps(value, ensure_ascii=False)
    except ValueError:
        text = "a very long number"
    return text if len(text) <= 40 else text[:37] + "…"
