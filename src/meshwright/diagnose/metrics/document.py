"""Metrics in JSON: trainer_state.json of Hugging Face, golden values of Megatron-LM, a metrics.jsonl of one line."""

from __future__ import annotations

from typing import Any

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.logs.line import Line, rank_in_path
from meshwright.diagnose.metrics.numbers import NAME
from meshwright.diagnose.metrics.read import add, named


def looks_like(parsed: Any) -> bool:
    """Whether it holds the history of a training."""
    if not isinstance(parsed, dict):
        return False
    if isinstance(parsed.get("log_history"), list):
        return True
    return _is_golden(parsed) or ("loss" in parsed and "step" in parsed)


def _is_golden(parsed: dict[str, Any]) -> bool:
    inner = parsed.get("lm loss")
    return isinstance(inner, dict) and isinstance(inner.get("values"), dict | list)


def read(parsed: Any, path: str, facts: Facts) -> int | None:
    """Adds every step."""
    rank = rank_in_path(path)
    if isinstance(history := parsed.get("log_history"), list):
        rows = [named(one) for one in history if isinstance(one, dict)]
    elif _is_golden(parsed):
        rows = _golden(parsed)
    else:
        rows = [named(parsed)]
    for values in rows:
        shown = ", ".join(f"{name} {value:g}" for name, value in values.items())
        if values.keys() & {"loss", "grad_norm", "seconds"}:
            add(facts, Line(path, 0, shown, rank, 0), dict(values))
    return rank


def _golden(parsed: dict[str, Any]) -> list[dict[str, float]]:
    """Megatron-LM's tests/functional_tests: {metric: {"values": {step: number or "nan"}}}; "nan": no such step yet."""
    rows: dict[int, dict[str, float]] = {}
    for key, inner in parsed.items():
        name = NAME.get(key.replace("-", "_").replace(" ", "_"), "seconds" if key == "iteration-time" else "")
        if not name or not isinstance(inner, dict):
            continue
        for step, value in _values(inner):
            read_ = value if isinstance(value, int | float) else None
            if read_ is not None and str(step).isdecimal() and len(str(step)) < 12:
                row = rows.setdefault(int(step), {"step": float(step)})
                row[name] = float(read_)
    return [rows[step] for step in sorted(rows)]


def _values(inner: dict[str, Any]) -> list[tuple[Any, Any]]:
    """(step, value), of the newer files {step: value} and of the older ones, which have a list from a first step on."""
    values = inner.get("values")
    if isinstance(values, dict):
        return list(values.items())
    start, every = inner.get("start_step", 0), inner.get("step_interval", 1)
    if not isinstance(values, list) or not isinstance(start, int) or not isinstance(every, int):
        return []
    return [(start + at * every, value) for at, value in enumerate(values)]
