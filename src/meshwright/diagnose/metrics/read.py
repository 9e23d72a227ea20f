"""Lines with metrics, of every kind that `numbers` reads, and metrics.jsonl."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.logs.cited import evidence
from meshwright.diagnose.logs.line import Line, holds
from meshwright.diagnose.metrics.meters import is_test, meters
from meshwright.diagnose.metrics.numbers import NAME, numbers
from meshwright.diagnose.metrics.series import MOST_SCALES, TEXT, Metrics, Pauses, Point, Scale

_HINTS = (
    "loss", "grad", "step", "iter", "tflops", "mfu", "utilization", "overflow", "samplespersec", "gc", "gen",
    "garbage", "kernel", "gpu busy", "expert",
)  # fmt: skip
"""One of these is in every line that is read here, in lower case."""
_SERIES = ("loss", "grad", "step", "iter")
_PLAUSIBLE = frozenset({"loss", "grad_norm", "tflops", "mfu", "tokens_per_second", "lr", "seconds", "skipped"})
_SCALE = re.compile(
    r"(?:Attempted loss scale: (?P<a>[\d.eE+-]+), reducing to (?P<b>[\d.eE+-]+)|"
    r"dynamic loss scale from (?P<c>[\d.eE+-]+) to (?P<d>[\d.eE+-]+)|"
    r"(?:reducing|setting) loss scale to:? (?P<e>[\d.eE+-]+)|"
    r"OVERFLOW! Skipping step\. Attempted loss scale: (?P<f>[\d.eE+-]+)\s*$)"
)
_ITERATION = re.compile(r"[Gg]rad overflow on iteration:? (\d{1,9})")
_TIMER = re.compile(
    r"(?:\d/(\d{1,9}),? |global_step=(\d{1,9}), |step=(\d{1,9}), ).{0,80}?(?:SamplesPerSec|samples/sec)", re.IGNORECASE
)
_GC = re.compile(
    r"(?:gen(?:eration)?[ -]?2\b|full (?:garbage )?collection|\bgc(?:\.collect)?\b|garbage collection).{0,60}?"
    r"(?:(\d+(?:\.\d+)?)(?:\s?[-–]\s?(\d+(?:\.\d+)?))?\s?(ms|s|sec|seconds)\b)",
    re.IGNORECASE,
)
_SENTENCES = (
    (
        "kernels_per_step",
        "kernel",
        re.compile(
            r"(\d[\d,]{1,9}) (?:small |tiny |CUDA )*kernels? (?:launches )?(?:per|a|each|every|/) ?"
            r"(?:training )?step",
            re.I,
        ),
    ),
    ("gpu_busy", "busy", re.compile(r"GPU (?:is |was )?busy (?:about |only |for |~)*(\d{1,3}(?:\.\d+)?) ?%", re.I)),
    ("utilization", "utilization", re.compile(r"Floating Point Utilization\s*[:=]?\s*(\d{1,4}(?:\.\d+)?) ?%", re.I)),
    ("utilization", "mfu", re.compile(r"MFU\s*[:=]?\s*(\d{1,4}(?:\.\d+)?) ?%", re.I)),
    ("step_seconds", "step time", re.compile(r"(?:Total )?step time\s*[:=]?\s*(\d{1,6}(?:\.\d+)?) ?s\b", re.I)),
)  # fmt: skip
_TOKENS = re.compile(r"expert[^\[\]]{0,60}\[(\s*\d[\d.,\s]{2,2000})\]", re.IGNORECASE)
_VALIDATION = re.compile(r"\b(?:valid(?:ation)?|eval(?:uation)?|test)\b.{0,24}\bloss\b", re.IGNORECASE)
_NO_WORD = re.compile(r"\W+")
MOST_KEPT = 256


def collect(line: Line, facts: Facts) -> str:
    """Adds what a line says of a step."""
    text, lower = line.text, line.text.lower()
    if not holds(lower, _HINTS):
        return ""
    told = sentences(line, lower, facts.of(Pauses))
    if ("overflow" in lower or "loss scale" in lower or "persec" in lower) and _scale(line, facts):
        return "log"
    if not holds(lower, _SERIES):
        return "log" if told else ""
    values = _json(text) if text.lstrip()[:1] == "{" else None
    if values is None:
        values = numbers(text)
        if "loss" in values and ("val" in lower or "test" in lower) and _VALIDATION.search(text):
            values["eval_loss"] = values.pop("loss")
    if "loss" in values and ("test" in lower or "val" in lower) and is_test(text):
        values["eval_loss"] = values.pop("loss")
    elif "data" in lower or "epoch" in lower:
        values.update(meters(text))
    has_step = "step" in values or "epoch" in values
    if not values.keys() & _PLAUSIBLE or not (has_step or "loss" in values):
        return "log" if told else ""
    add(facts, line, values)
    return "metrics"


def add(facts: Facts, line: Line, values: dict[str, float]) -> None:
    """One step of the run that the line belongs to."""
    rank = int(values["rank"]) if 0 <= values.get("rank", math.nan) < 10**7 else line.rank
    metrics = facts.of(Metrics)
    run = metrics.run(line.path, rank)
    if run is None:
        return
    step = values.get("step", math.nan)
    if not 0 <= step < 2**53:
        run.counted, step = False, run.printed
    kept = {name: value for name, value in values.items() if name not in ("rank", "step")}
    last = run.points[-1] if run.points else None
    if last is not None and last.step == int(step) and not kept.keys() & last.values.keys() and "step" in values:
        run.points[-1] = Point(last.step, {**last.values, **kept}, last.line, last.text, last.year)
    else:
        metrics.add(run, Point(int(step), kept, line.number, line.text.strip()[:TEXT], line.year))


def _json(text: str) -> dict[str, float] | None:
    """A line of a metrics.jsonl, ours or another's."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return named(parsed) if isinstance(parsed, dict) else None


def named(parsed: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of an object whose keys are names of metrics."""
    found: dict[str, float] = {}
    for key, value in parsed.items():
        word = _NO_WORD.sub("_", str(key).lower()).strip("_")
        name = NAME.get(word.replace("train_", "", 1)) or NAME.get(word)
        if name and isinstance(value, int | float) and abs(value) < 1e300:
            found.setdefault(name, float(value) / (100 if str(key).endswith("(%)") else 1))
        elif name and value is None and name in ("loss", "grad_norm"):
            found.setdefault(name, math.nan)
    if isinstance(memory := parsed.get("memory_bytes"), int | float) and abs(memory) < 1e18:
        found["memory_gib"] = memory / 2**30
    if parsed.get("skipped") is True:
        found["skipped_here"] = 1.0
    if "milliseconds" in found:
        found["seconds"] = found.pop("milliseconds") / 1000
    return found


def _scale(line: Line, facts: Facts) -> bool:
    pauses = facts.of(Pauses)
    if (found := _ITERATION.search(line.text)) and len(pauses.iterations) < 100_000:
        pauses.iterations.append((line.path, int(found[1]), evidence(line, text=line.text.strip()[:TEXT])))
    if timer := _TIMER.search(line.text):
        count = int(timer[1] or timer[2] or timer[3])
        pauses.timers[line.path] = max(pauses.timers.get(line.path, 0), count)
    match = _SCALE.search(line.text)
    run = facts.of(Metrics).run(line.path, line.rank) if match else None
    if match is None or run is None or len(run.scales) >= MOST_SCALES:
        return match is not None
    after = _float(match["b"] or match["d"] or match["e"] or match["f"])
    before = _float(match["a"] or match["c"]) if match["a"] or match["c"] else after * 2
    if match["f"]:
        before, after = after, after / 2
    last = run.scales[-1] if run.scales else None
    if (
        0 < after < math.inf
        and 0 < before < math.inf
        and not (last and (last.before, last.after) == (before, after) and last.line == line.number - 1)
    ):
        run.scales.append(Scale(before, after, line.number, line.text.strip()[:TEXT], run.printed, line.year))
    return True


def _float(text: str) -> float:
    try:
        return float(text.rstrip("."))
    except ValueError:
        return 0.0


def sentences(line: Line, lower: str, pauses: Pauses) -> bool:
    """Keeps numbers that people and profilers write in sentences; whether there was one."""
    before = len(pauses.collections) + len(pauses.said) + len(pauses.counts)
    collected = ("gc" in lower or "gen" in lower or "collection" in lower) and len(pauses.collections) < MOST_KEPT
    hinted = [one for one in _SENTENCES if one[1] in lower and one[0] not in pauses.said]
    if not collected and not hinted and "expert" not in lower:
        return False
    seen = evidence(line, text=line.text.strip()[:TEXT])
    if collected and (found := _GC.search(line.text)):
        seconds = float(found[2] or found[1]) / (1000 if found[3].lower() == "ms" else 1)
        pauses.collections.append((seconds, seen))
    for name, _, pattern in hinted:
        if (said := pattern.search(line.text)) and len(said[1]) < 12:
            pauses.said[name] = (float(said[1].replace(",", "")), seen)
    if "expert" in lower and (tokens := _TOKENS.search(line.text)) and len(pauses.counts) < MOST_KEPT:
        counts = tuple(float(one) for one in re.findall(r"\d{1,12}(?:\.\d{1,6})?", tokens[1])[:1024])
        pauses.counts.append((counts, seen))
    return len(pauses.collections) + len(pauses.said) + len(pauses.counts) > before
