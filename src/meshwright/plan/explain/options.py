"""Options of an explanation: how each is read from text, and what it means. Light: the help page loads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from meshwright.spec.errors import RequestError
from meshwright.spec.layout import MAX_DEGREE, RECOMPUTE, SCHEDULES
from meshwright.spec.units import parse_bandwidth, parse_bytes, parse_count, parse_seconds
from meshwright.spec.workload import STATES

MOST = 2**30
"""The largest count; more is a slip of the keyboard."""


@dataclass(frozen=True, slots=True)
class Option:
    """One number or name that a page reads."""

    help: str
    metavar: str
    read: Callable[[str, str], Any]
    """From the option's name and the text to the value. Raises RequestError."""
    names: tuple[str, ...] = ()
    """Legal values of a name."""


def flag(name: str) -> str:
    """The option as it is typed: `--micro-batch`."""
    return "--" + name.replace("_", "-")


def _whole(least: int, most: int = MOST) -> Callable[[str, str], int]:
    def read(name: str, text: str) -> int:
        digits = text.strip()
        if digits.lstrip("-").isdecimal() and len(digits) <= 12 and least <= int(digits) <= most:
            return int(digits)
        raise RequestError(f"{flag(name)} is {text[:40]!r}.", (f"a whole number from {least} to {most}",))

    return read


def _positive(parse: Callable[[str], float]) -> Callable[[str, str], float]:
    def read(name: str, text: str) -> float:
        try:
            value = parse(text)
        except RequestError as error:
            raise RequestError(f"{flag(name)}: {error}") from error
        if value <= 0:
            raise RequestError(f"{flag(name)} is {text[:40]!r}: it must be above 0.")
        return value

    return read


def _name(legal: tuple[str, ...]) -> Callable[[str, str], str]:
    def read(name: str, text: str) -> str:
        if text.lower() in legal:
            return text.lower()
        near = get_close_matches(text[:40].lower(), legal, n=3, cutoff=0.5)
        raise RequestError(f"{flag(name)} is {text[:40]!r}.", tuple(near) or legal)

    return read


def _count(help_text: str, least: int = 1, most: int = MAX_DEGREE) -> Option:
    return Option(help_text, "N", _whole(least, most))


def _choice(help_text: str, legal: tuple[str, ...]) -> Option:
    return Option(f"{help_text}: {', '.join(legal)}.", "NAME", _name(legal), legal)


OPTIONS: Mapping[str, Option] = {
    "parameters": Option("Parameters of the model: 7.1e9, 7.1B.", "COUNT", _positive(parse_count)),
    "ranks": _count("Ranks of the axis that the topic is about."),
    "layers": _count("Layers of the model."),
    "hidden": _count("Hidden size."),
    "heads": _count("Attention heads; they divide the hidden size."),
    "seq_len": _count("Tokens a sequence.", most=MOST),
    "micro_batch": _count("Sequences a micro-batch."),
    "micro_batches": _count("Micro-batches a step."),
    "global_batch": _count("Sequences a step, over all ranks.", most=MOST),
    "states": _choice("Copies of the parameters that are kept", STATES),
    "zero": _count("ZeRO stage: 0 (DDP), 1, 2 or 3.", least=0, most=3),
    "replicas": _count("Replicas of a sharded group; they divide the ranks."),
    "tensor": _count("Tensor-parallel ranks."),
    "stages": _count("Pipeline ranks."),
    "schedule": _choice("Pipeline schedule", SCHEDULES),
    "virtual_stages": _count("Stages a pipeline rank."),
    "recompute": _choice("Recomputation", RECOMPUTE),
    "experts": _count("Routed experts a layer."),
    "per_token": _count("Experts that a token visits."),
    "lora_rank": _count("Rank of the adapters."),
    "servers": _count("Parameter servers."),
    "staleness": _count("Steps that a worker may run ahead; 0: none, -1: any number.", least=-1),
    "size": Option("A tensor's size: 14GB, 64 MiB.", "SIZE", _positive(parse_bytes)),
    "bandwidth": Option("Bandwidth of a rank's link, one direction: 25GB/s.", "RATE", _positive(parse_bandwidth)),
    "node_bandwidth": Option("Bandwidth inside a node: 300GB/s.", "RATE", _positive(parse_bandwidth)),
    "per_node": _count("Devices a node."),
    "latency": Option("Latency of a hop: 5us.", "TIME", _positive(parse_seconds)),
    "step_time": Option("Measured time of a step: 2.5s.", "TIME", _positive(parse_seconds)),
    "compute_time": Option("A worker's compute in a step: 500ms.", "TIME", _positive(parse_seconds)),
}
