"""The job whose memory ran out: its settings as `configuration` reads them, its model, and how ranks share it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meshwright.diagnose.configuration import settings as configuration
from meshwright.diagnose.configuration.named import configuration_of
from meshwright.diagnose.facts import Facts
from meshwright.diagnose.logs.late import Late
from meshwright.diagnose.logs.line import Line, holds
from meshwright.diagnose.memory.facts import MemoryFacts

LARGEST = 2**31
"""Of what a text may say of any quantity."""
_WORTH = (
    "FSDP", "fsdp", "FULL_SHARD", "fully_shard", "FullySharded", "ZeRO", "zero_", "zero3", "zero2", "zero1", "LoRA",
    "LORA", "lora", "peft",
)  # fmt: skip
"""One of them is in every line that is read here."""
_ADAPTERS = Late(r"\bQ?LoRA\b|\bq?lora\b|\bpeft\b|lora_r|lora_rank")
_SHARDING = (
    ("zero3", Late(r"zero_(?:optimization_)?stage\W+3|ZeRO(?:[ -]?[Ss]tage)?[ -]?3|\bzero3\b")),
    ("zero2", Late(r"zero_(?:optimization_)?stage\W+2|ZeRO(?:[ -]?[Ss]tage)?[ -]?2|\bzero2\b")),
    ("zero1", Late(r"zero_(?:optimization_)?stage\W+1|ZeRO(?:[ -]?[Ss]tage)?[ -]?1|\bzero1\b")),
    ("fsdp", Late(r"\bFSDP2?\b|--fsdp\b|FULL_SHARD|fully_shard|FullyShardedDataParallel")),
)
STAGES = ("ddp", "zero1", "zero2", "zero3")
"""By DeepSpeed's number (deepspeed/runtime/zero/config.py)."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is known of the model, the batch and the layout. Numbers are 0 where nothing tells them."""

    config: Mapping[str, Any] | None = None
    """As a Hugging Face config.json has it."""
    batch: int = 0
    """Sequences of a micro-batch on one rank."""
    sequence: int = 0
    vocabulary: int = 0
    tensor: int = 0
    pipeline: int = 0
    world: int = 0
    sharding: str = ""
    """What data-parallel ranks share: ddp (nothing), zero1, zero2, zero3, fsdp; "": not known."""
    adapters: bool = False


def look(line: Line, found: MemoryFacts) -> None:
    """Adds what a line names of how a model is shared and trained; the first of a file wins, as launch lines do."""
    text = line.text
    if not holds(text, _WORTH):
        return
    if _ADAPTERS.search(text):
        found.adapters.add(line.path)
    if line.path not in found.sharding:
        for name, pattern in _SHARDING:
            if pattern.search(text):
                found.sharding[line.path] = name
                break


def job_of(facts: Facts, path: str) -> Job:
    """The job that a log belongs to."""
    found, told = facts.of(MemoryFacts), configuration.job_at(facts, path)
    config = _beside(found.configs, path) or configuration_of(told.model) or _megatron(told)
    named = _beside(found.sharding, path) or ""
    words = _inner(config or {}).get("vocab_size")
    known = words if isinstance(words, int) and not isinstance(words, bool) and 0 < words < LARGEST else 0
    return Job(
        config=config or None,
        batch=told.number("micro") or told.number("batch"),
        sequence=told.number("sequence") or told.number("length"),
        vocabulary=told.number("padded_vocabulary") or known or told.number("vocabulary"),
        tensor=told.number("tp"), pipeline=told.number("pp"), world=told.world,
        sharding=_sharding(told) or named or ("ddp" if _is_megatron(told) else ""),
        adapters=any(configuration.folder(one) == configuration.folder(path) for one in found.adapters),
    )  # fmt: skip


def _beside(known: Mapping[str, Any], path: str) -> Any:
    """What a file says, else its folder's first, else the only one; None: there is none, or several."""
    same = [one for other, one in known.items() if configuration.folder(other) == configuration.folder(path)]
    if path in known or same:
        return known.get(path, next(iter(same)))
    return next(iter(known.values())) if len(known) == 1 else None


def _sharding(told: configuration.Job) -> str:
    """What settings say of it."""
    if (zero := told.settings.get("zero")) is not None and zero.value in (0, 1, 2, 3):
        return STAGES[int(zero.value)]
    if told.number("dp_shard") > 1:
        return "fsdp"
    return "zero1" if told.on("distributed_optimizer") else ""


def _is_megatron(told: configuration.Job) -> bool:
    """Whether Megatron-LM's arguments were read: without a distributed optimizer every rank keeps its part whole."""
    return any("model_parallel_size" in one.text.replace("-", "_") for one in told.settings.values())


def _megatron(told: configuration.Job) -> dict[str, Any] | None:
    """A model of Megatron-LM's arguments (training/arguments.py: a feed-forward part of 4 x hidden by default)."""
    layers, hidden, heads = (told.number(name) for name in ("layers", "hidden", "heads"))
    words = told.number("padded_vocabulary") or told.number("vocabulary")
    if not (layers and hidden and heads and words and _is_megatron(told)) or told.number("experts") > 1:
        return None
    gated = told.on("swiglu")
    return {
        "model_type": "llama" if gated else "gpt_neox", "hidden_size": hidden, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": told.number("kv_heads") or heads, "vocab_size": words,
        "intermediate_size": told.number("ffn") or (hidden * 8 // 3 // 64 * 64 if gated else 4 * hidden),
        "tie_word_embeddings": not told.on("untied"), "max_position_embeddings": told.number("sequence") or 2048,
    }  # fmt: skip


def _inner(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a configuration that has the vocabulary."""
    inner = config.get("text_config")
    return inner if "vocab_size" not in config and isinstance(inner, dict) else config


def looks_like_config(parsed: Any) -> bool:
    """A Hugging Face config.json of a language model."""
    if not isinstance(parsed, dict):
        return False
    inner = parsed.get("text_config")
    return ("vocab_size" in parsed or (isinstance(inner, dict) and "vocab_size" in inner)) and (
        "model_type" in parsed or "architectures" in parsed
    )
