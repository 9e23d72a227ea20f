"""What texts say of a job's model and batch: launch arguments and the lines that frameworks print at the start."""

from __future__ import annotations

from typing import Any

from meshwright.diagnose.logs.late import Late
from meshwright.diagnose.logs.line import holds
from meshwright.diagnose.memory.facts import Job, MemoryFacts

ARGUMENTS = {
    "batch": r"(?:per[_-]device[_-]train[_-]batch[_-]size|train[_-]micro[_-]batch[_-]size[_-]per[_-]gpu|"
    r"micro[_-]batch[_-]size|local[_-]batch[_-]size|\bmbs|(?<![A-Za-z]-)\bbatch[_-]size)",
    "sequence": r"(?:max[_-]seq(?:uence)?[_-]length|\bseq(?:uence)?[_-]len(?:gth)?|\bmodel[_-]max[_-]length|"
    r"\bcutoff[_-]len|\bblock[_-]size|\bmax[_-]length|\bn_ctx)",
    "vocabulary": r"(?:padded[_-]vocab[_-]size|\bvocab[_-]size)",
    "tensor": r"(?:tensor[_-](?:model[_-])?parallel[_-](?:size|degree)|\btp[_-]size|\btp[_-]degree)",
    "world": r"(?:\bworld[_ -]size|\bnum[_-]processes|\bWORLD_SIZE)",
    "per_node": r"(?:nproc[_-]per[_-]node)",
    "nodes": r"(?:\bnnodes|\bnum[_-]machines)",
}
"""Names of Hugging Face's Trainer, DeepSpeed, Megatron-LM, torchtitan, LLaMA-Factory, axolotl, torchrun."""
LARGEST = 2**31
"""Of what a text may say of any of them."""
_WORTH = (
    "--", "_size", "-size", "seq_len", "_length", "_degree", "batch size", "world size", "WORLD_SIZE", "FSDP", "fsdp",
    "FULL_SHARD", "fully_shard", "FullySharded", "ZeRO", "Zero", "zero", "LoRA", "LORA", "lora", "peft",
)  # fmt: skip
"""One of them is in every line that is read here."""
_ADAPTERS = Late(r"\bQ?LoRA\b|\bq?lora\b|\bpeft\b|lora_r|lora_rank")
_ARGUMENTS = {
    name: Late(rf"{text}['\"]?[\s.]{{0,60}}(?:[=:]|\s)\s{{0,8}}(\d{{1,10}})\b") for name, text in ARGUMENTS.items()
}
_SHARDING = (
    ("zero3", Late(r"zero_(?:optimization_)?stage\W+3|ZeRO(?:[ -]?[Ss]tage)?[ -]?3|\bzero3\b")),
    ("zero2", Late(r"zero_(?:optimization_)?stage\W+2|ZeRO(?:[ -]?[Ss]tage)?[ -]?2|\bzero2\b")),
    ("zero1", Late(r"zero_(?:optimization_)?stage\W+1|ZeRO(?:[ -]?[Ss]tage)?[ -]?1|\bzero1\b")),
    ("fsdp", Late(r"\bFSDP2?\b|--fsdp\b|FULL_SHARD|fully_shard|FullyShardedDataParallel")),
)


def look(text: str, found: MemoryFacts) -> None:
    """Adds what a line says of the job; the first value of each wins, as launch lines come first."""
    if not holds(text, _WORTH):
        return
    for name, pattern in _ARGUMENTS.items():
        if name not in found.job.arguments and (match := pattern.search(text)) and 0 < int(match[1]) < LARGEST:
            found.job.arguments[name] = int(match[1])
    if _ADAPTERS.search(text):
        found.job.adapters = True
    if not found.job.sharding:
        found.job.sharding = next((name for name, pattern in _SHARDING if pattern.search(text)), "")


def vocabulary(job: Job) -> int | None:
    """Tokens of the vocabulary, if known."""
    config = job.config or {}
    inner = config.get("text_config")
    for one in (config.get("vocab_size"), inner.get("vocab_size") if isinstance(inner, dict) else None):
        if isinstance(one, int) and not isinstance(one, bool) and 0 < one < LARGEST:
            return one
    return job.arguments.get("vocabulary")


def world(job: Job) -> int | None:
    """Processes of the job, if known."""
    known = job.arguments
    if "world" in known:
        return known["world"]
    return known["per_node"] * known.get("nodes", 1) if "per_node" in known else None


def looks_like_config(parsed: Any) -> bool:
    """A Hugging Face config.json of a language model."""
    if not isinstance(parsed, dict):
        return False
    inner = parsed.get("text_config")
    return ("vocab_size" in parsed or (isinstance(inner, dict) and "vocab_size" in inner)) and (
        "model_type" in parsed or "architectures" in parsed
    )
