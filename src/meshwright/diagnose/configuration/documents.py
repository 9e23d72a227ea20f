"""JSON and TOML that say what a job was told: DeepSpeed, Hugging Face, torchtitan, ours, plain objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from meshwright.diagnose.configuration.names import FLAGS, format_of, name_of
from meshwright.diagnose.configuration.notes import noted
from meshwright.diagnose.configuration.settings import FILE, Setting, Settings
from meshwright.diagnose.configuration.values import value_of
from meshwright.diagnose.facts import Facts

DEEPEST = 4
"""Objects in objects that are looked into."""
MOST_KEYS = 4000
_WORDS = {
    "layout",
    "model",
    "cluster",
    "parallelism",
    "parallel",
    "gpus",
    "gpu",
    "hardware",
    "seq",
    "batch",
    "framework",
}
"""Keys of a plain object whose text is read as a person's."""
_MODELS = frozenset({"model", "model_name", "model_name_or_path", "_name_or_path"})
_MARKS = frozenset(
    "train_batch_size zero_optimization train_micro_batch_size_per_gpu architectures model_type compute_environment "
    "layout parallelism num_processes nproc nproc_per_node world_size micro_batch gradient_accumulation_steps".split()
)
"""Keys that tell a configuration."""


def looks_like(parsed: Any) -> bool:
    """Whether it is a configuration: a key that only one has, or two quantities that are read."""
    if not isinstance(parsed, dict) or "traceEvents" in parsed or "entries" in parsed:
        return False
    names = {name for _, name, _ in _pairs(parsed) if name}
    if "layout" in parsed or len(names) >= 2:
        return True
    return bool(names and parsed.keys() & (_MARKS | _WORDS))


def read(parsed: Any, path: str, facts: Facts) -> int | None:
    """Adds what it says to the facts."""
    settings = facts.of(Settings)

    def keep(name: str, value: int | float | bool, text: str) -> None:
        settings.add(name, Setting(value, FILE, path, text[:300]))

    for key, name, value in _pairs(parsed):
        if key == "layout" or (key in _WORDS and isinstance(value, str)):
            for word, count in noted(f" {_spelt(value)}").items():
                keep(word, count, f"{key}: {value}")
        if key in _MODELS and isinstance(value, str):
            settings.models.setdefault(path, value[:120])
        if (numbers := format_of(key, value)) is not None:
            keep(numbers, True, f"{key}: {value}")
        number = value_of(value)
        if name is None or number is None:
            continue
        if isinstance(number, bool) == (name in FLAGS) or name == "bucket_size":
            keep(name, number, f"{key}: {value}")
    _deepspeed(parsed, keep)
    return None


def _spelt(value: Any) -> str:
    return value[:400] if isinstance(value, str) else ""


def _pairs(parsed: Mapping[Any, Any]) -> Iterator[tuple[str, str | None, Any]]:
    """Every key that holds a plain value, down to `DEEPEST`: the key, its name here, the value."""
    waiting: list[tuple[Mapping[Any, Any], int]] = [(parsed, 1)]
    left = MOST_KEYS
    while waiting:
        one, depth = waiting.pop(0)
        for key, value in one.items():
            left -= 1
            if left < 0 or not isinstance(key, str):
                return
            if isinstance(value, dict):
                # The text model of a multimodal one is not the whole model, but its shape is what is split.
                if depth < DEEPEST and "vision" not in key and "audio" not in key:
                    waiting.append((value, depth + 1))
            elif isinstance(value, str | int | float | bool):
                yield key, name_of(key), value


def _deepspeed(parsed: Any, keep: Any) -> None:
    """`train_batch_size` is the global batch in a DeepSpeed JSON and in no command; its stage lies in a section."""
    batch = value_of(parsed.get("train_batch_size"))
    if batch is not None and not isinstance(batch, bool):
        keep("global_batch", batch, f"train_batch_size: {batch}")
    section = parsed.get("zero_optimization")
    if isinstance(section, dict):
        stage = value_of(section.get("stage"))
        if stage is not None and not isinstance(stage, bool):
            keep("zero", stage, f"zero_optimization.stage: {stage}")
    for name in ("fp16", "bf16"):
        section = parsed.get(name)
        if isinstance(section, dict) and isinstance(section.get("enabled"), bool):
            keep(name, section["enabled"], f"{name}.enabled: {section['enabled']}")
