"""The keys of the configuration: dotted path, type, default, what is legal, and the help under the field."""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from meshwright.train.config.legal import Between, OneOf, Rule
from meshwright.train.config.tree import DERIVED, TrainConfig


@dataclass(frozen=True, slots=True)
class Key:
    """One value of the configuration."""

    path: str
    """As it is written: `seed`, `train.steps`."""
    section: str
    """Name of the dataclass field that holds the section; "" for the top."""
    field: str
    """Name of the field in its dataclass."""
    kind: type
    """bool, int, float, str or Path; of a list, that of its items."""
    length: int | None
    """Items of a list, 0: any number; None: no list."""
    optional: bool
    """Whether it may be absent (None)."""
    single: bool
    """Whether one item may stand for the list of it."""
    rules: tuple[Rule, ...]
    default: Any
    doc: str

    @property
    def name(self) -> str:
        """The last part of the path: the key in its TOML table."""
        return self.path.rsplit(".", 1)[-1]

    @property
    def names(self) -> tuple[str, ...]:
        """Legal names, where there is a choice of them."""
        return next((rule.names for rule in self.rules if isinstance(rule, OneOf)), ())


@cache
def keys() -> Mapping[str, Key]:
    """Every key by its path, the top ones first."""
    found = {key.path: key for key in _of(TrainConfig, "")}
    for section, kind in sections().items():
        found |= {key.path: key for key in _of(kind, section)}
    return found


@cache
def sections() -> Mapping[str, type]:
    """The dataclass of each section, by the name of its TOML table."""
    hints = get_type_hints(TrainConfig)
    return {f.name: hints[f.name] for f in fields(TrainConfig) if is_dataclass(hints[f.name])}


def nearest_keys(path: str) -> tuple[str, ...]:
    """The few legal paths that look most like `path`: its name in another section, or what its own section has."""
    legal = list(keys())
    section, _, name = path.rpartition(".")
    same = [one for one in legal if section in sections() and one.startswith(f"{section}.")]
    named = [one for one in legal if one.rsplit(".", 1)[-1] == name.lower()]
    close = get_close_matches(path[:80].lower(), same or legal, n=3, cutoff=0.5)
    return tuple(named or close or same or sections())


def _of(kind: type, section: str) -> Iterator[Key]:
    """The keys of one dataclass that are no sections themselves."""
    hints, docs = get_type_hints(kind, include_extras=True), field_docs(kind)
    for one in fields(kind):
        if is_dataclass(hints[one.name]):
            continue
        shape = _shape(hints[one.name])
        name = one.name.rstrip("_")  # `async` is no name in Python
        path = f"{section}.{name}" if section else name
        if path in DERIVED:
            continue
        yield Key(path, section, one.name, *shape, _default(one), docs.get(one.name, ""))


def _default(one: Field[Any]) -> Any:
    if one.default_factory is not MISSING:
        return one.default_factory()
    if one.default is MISSING:
        raise TypeError(f"The configuration's field {one.name} has no default.")
    return one.default


def _shape(hint: Any) -> tuple[type, int | None, bool, bool, tuple[Rule, ...]]:
    """Type of the value or of the items, length of the list, whether None, whether a single item is allowed, rules."""
    rules: tuple[Rule, ...] = ()
    if get_origin(hint) is Annotated:
        hint, *extras = get_args(hint)
        rules = tuple(extra for extra in extras if isinstance(extra, Between | OneOf))
    if get_origin(hint) in (Union, types.UnionType):
        return _union(list(get_args(hint)))
    if get_origin(hint) is tuple:
        items = get_args(hint)
        length = 0 if len(items) == 2 and items[1] is Ellipsis else len(items)
        return _shape(items[0])[0], length, False, False, _shape(items[0])[-1]
    if get_origin(hint) is Literal:
        return str, None, False, False, (*rules, OneOf(get_args(hint)))
    if hint not in (bool, int, float, str, Path):
        raise TypeError(f"The configuration cannot hold {hint}.")
    return hint, None, False, False, rules


def _union(hints: list[Any]) -> tuple[type, int | None, bool, bool, tuple[Rule, ...]]:
    """T | None, or T | tuple[T, ...]."""
    inner = [hint for hint in hints if hint is not type(None)]
    shapes = [_shape(hint) for hint in inner]
    lists = [shape for shape in shapes if shape[1] == 0]
    if len(inner) > 2 or (len(inner) == 2 and (len(lists) != 1 or shapes[0][0] is not shapes[1][0])):
        raise TypeError(f"The configuration cannot hold any of {hints}.")
    kind, length, _, _, rules = lists[0] if lists else shapes[0]
    return kind, length, len(inner) < len(hints), len(inner) == 2, rules


@cache
def field_docs(kind: type) -> Mapping[str, str]:
    """The text under each field of a dataclass, on one line; empty where the source is not at hand."""
    try:
        source = inspect.getsource(import_module(kind.__module__))
    except OSError:
        return {}
    body = next(n.body for n in ast.parse(source).body if isinstance(n, ast.ClassDef) and n.name == kind.__name__)
    found = {}
    for one, below in pairwise(body):
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and isinstance(below, ast.Expr):
            text = below.value.value if isinstance(below.value, ast.Constant) else ""
            found[one.target.id] = " ".join(str(text).split())
    return found
