"""A model's Architecture in a checkpoint's manifest, so that it can be exported with nothing else at hand."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from typing import Any

from meshwright.train.checkpoint.errors import CheckpointError
from meshwright.train.models.architecture import Architecture

FREE = frozenset(
    "model.name model.source model.warnings notes config init_std balance_coefficient capacity_factor".split()
)
"""What may differ between the run that saved and the run that loads: the weights mean the same."""


def architecture_json(architecture: Architecture) -> dict[str, Any]:
    """The architecture as JSON values, which `architecture_from` reads back."""
    values: dict[str, Any] = _plain(asdict(architecture))
    return values


def architecture_from(values: Mapping[str, Any]) -> Architecture:
    """The architecture that a manifest's `model` holds. Raises CheckpointError when it holds none."""
    try:
        found: Architecture = _build(Architecture, values)
    except (TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"The checkpoint does not say which model it is of: {error}.") from error
    return found


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as one, with dotted names. What is FREE stays whole."""
    out: dict[str, Any] = {}
    for name, value in values.items():
        dotted = prefix + name
        out |= flat(value, dotted + ".") if isinstance(value, Mapping) and dotted not in FREE else {dotted: value}
    return out


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, frozenset | set):
        return sorted(map(_plain, value))
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def _build(kind: Any, value: Any) -> Any:
    """`value` as a `kind`: a dataclass, a container, an optional one of these, or a plain value of that very type."""
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        chosen = types.NoneType if value is None else next(k for k in inside if k is not types.NoneType)
        return _build(chosen, value)
    if origin in (tuple, frozenset):
        return origin(_build(inside[0], item) for item in value)
    if origin is not None or kind is Any:
        return value
    if is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        if not isinstance(value, Mapping) or value.keys() != {f.name for f in fields(kind)}:
            raise ValueError(f"{value!r:.60} is no {getattr(kind, '__name__', kind)}")
        return kind(**{name: _build(hints[name], inner) for name, inner in value.items()})  # type: ignore[operator]
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ValueError(f"{value!r:.60} is no {kind.__name__}")
    return value
