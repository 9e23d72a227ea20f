"""Topics: what can be explained, by which function, with which options. Names only, so that completion is quick."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from meshwright.spec.errors import RequestError


@dataclass(frozen=True, slots=True)
class Topic:
    """One account."""

    name: str
    summary: str
    home: str
    """Module of this package."""
    options: Mapping[str, Any]
    """The options that it reads, with their defaults here; None: the field's own default."""
    axis: str = "data"
    """The degree of a Layout that `ranks` stands for."""
    words: tuple[str, ...] = field(default=())
    """Other words that people use for it."""


def _topic(
    name: str, home: str, summary: str, options: str, words: str = "", axis: str = "data", **given: Any
) -> Topic:
    read = {option: given.get(option) for option in options.split()}
    return Topic(name, summary, home, read, axis, tuple(words.split()))


DATA = "parameters ranks bandwidth latency states"
LAYER = "layers hidden heads seq_len micro_batch"
SPARSE: Mapping[str, Any] = {"parameters": 1e8, "servers": 4, "compute_time": 0.2}
"""A model of the size that parameter servers are used for."""
PIPE = "stages micro_batches schedule virtual_stages"

TOPICS: Mapping[str, Topic] = {
    topic.name: topic
    for topic in (
        _topic("layout", "notation", "the notation: how a job is split, in words of one line", "", "notation tokens"),
        _topic("units", "units", "GiB and GB, Gbps and GB/s, bytes a parameter", "size bandwidth parameters states",
               "gib gb bytes", size=80e9),
        _topic("memory", "memory", "where a device's memory goes, part by part",
               f"{LAYER} ranks states recompute zero", "oom", zero=3),
        _topic("ddp", "data", "every rank holds everything and gradients are all-reduced", DATA, "allreduce replicate"),
        _topic("zero", "zero", "data ranks share optimizer states, then gradients, then parameters", DATA,
               "zero1 zero2 zero3 deepspeed"),
        _topic("fsdp", "sharded", "parameters are gathered layer by layer (ZeRO-3)",
               f"{DATA} layers micro_batches", "fully-sharded", micro_batches=4),
        _topic("hsdp", "sharded", "sharded inside groups, replicated between them",
               f"{DATA} micro_batches replicas", "hybrid", "shard", replicas=2, micro_batches=4),
        _topic("zero++", "zeropp", "quantised traffic, and a copy of the parameters in every node",
               f"{DATA} node_bandwidth per_node", "zeropp qwz qgz hpz", "shard", ranks=32),
        _topic("offload", "offload", "optimizer states in the host's memory, updated there",
               "parameters ranks states zero", "cpu nvme", zero=3),
        _topic("lora", "lora", "frozen weights and small adapters that learn",
               "layers hidden heads seq_len ranks zero lora_rank", "peft adapters frozen"),
        _topic("tp", "tensor", "each product is split; two all-reduces forward, two backward",
               f"{LAYER} ranks bandwidth latency", "tensor megatron", "tensor", bandwidth=300e9),
        _topic("sp", "tensor", "norms and residuals split along the sequence, for the same bytes",
               f"{LAYER} ranks bandwidth latency", "sequence", "tensor", bandwidth=300e9),
        _topic("cp", "context", "the sequence is split; keys and values travel",
               f"{LAYER} ranks bandwidth latency", "context ring ulysses", "context", seq_len=131072),
        _topic("ep", "experts", "experts on different ranks; tokens travel to them",
               "ranks hidden layers seq_len micro_batch experts per_token bandwidth latency", "expert moe", "expert"),
        _topic("pp", "pipe", "layers in stages, micro-batches in a row",
               f"{LAYER} {PIPE} bandwidth latency", "pipeline stages"),
        _topic("bubble", "bubble", "the share of time that pipeline ranks wait", PIPE, "idle", micro_batches=32),
        _topic("schedules", "bubble", "the seven pipeline schedules: bubble and memory",
               "stages micro_batches", "1f1b gpipe interleaved zbv dualpipe", micro_batches=16),
        _topic("recompute", "recompute", "activations dropped in forward and computed again in backward",
               f"{LAYER} tensor", "checkpointing ac activation"),
        _topic("ps", "servers", "workers push gradients to servers and pull parameters",
               f"{DATA} servers staleness compute_time", "parameter-server servers", "replicate", **SPARSE),
        _topic("async", "servers", "workers that do not wait: throughput and staleness",
               f"{DATA} servers staleness compute_time", "ssp hogwild downpour stale", "replicate", staleness=3,
               **SPARSE),
        _topic("alpha-beta", "alphabeta", "seconds of a collective: latency and bandwidth",
               "size ranks bandwidth latency", "collectives latency nccl"),
        _topic("mfu", "mfu", "the share of the peak that a run reaches",
               "layers hidden heads seq_len global_batch ranks step_time", "flops hfu utilisation", "devices"),
    )
}  # fmt: skip


def find_topic(name: str) -> Topic:
    """The topic of that name or of a word for it. Raises RequestError with the nearest names."""
    wanted = name.strip().lower()
    by_word = {word: topic for topic in TOPICS.values() for word in (topic.name, *topic.words)}
    if wanted in by_word:
        return by_word[wanted]
    close = difflib.get_close_matches(wanted[:40], by_word, n=3, cutoff=0.5)
    near = dict.fromkeys(by_word[word].name for word in close)
    raise RequestError(f"There is no topic {name[:40]!r}.", tuple(near) or tuple(TOPICS))
