"""Heads, key/value heads and sequences that a layout cannot split.

Rules of Megatron-LM's TransformerConfig (heads and query groups by the tensor degree), torchtitan's ParallelDims
(sequence by tensor × 2 × context), DeepSpeed-Ulysses (arXiv 2309.14509, section 3: heads by the sequence degree); as
in meshwright.spec.rules.tensor and .context.
"""

from __future__ import annotations

from collections.abc import Iterator

from meshwright.diagnose.configuration.legal import common, listed, neighbours, tensor_degrees
from meshwright.diagnose.configuration.settings import Job
from meshwright.diagnose.finding import CERTAIN, ERROR, INFO, LIKELY, POSSIBLE, WARNING, Finding


def heads(job: Job) -> Iterator[Finding]:
    """Attention heads are shared out whole."""
    count, tp, kv = job.number("heads"), job.number("tp"), key_value_heads(job)
    if count and tp > 1 and count % tp:
        yield Finding(
            "divisibility_heads", ERROR, CERTAIN if job.is_told("heads", "tp") else LIKELY, (),
            f"{count} attention heads cannot be split over {tp} tensor-parallel ranks.",
            job.evidence("heads", "tp", "kv_heads"),
            change=(tensor_advice(count, kv),), weight=2,
        )  # fmt: skip


def key_value_heads(job: Job) -> int:
    """0: not known, or every head has its own."""
    count = job.number("kv_heads")
    return 0 if job.off("grouped") or count == job.number("heads") else count


def tensor_advice(heads_: int, kv: int) -> str:
    """What tensor degrees a model of these heads takes."""
    legal = tensor_degrees(heads_, kv)
    of = f"{heads_} heads" + (f" and {kv} key/value heads" if kv else "")
    return f"Take a tensor degree of {listed(legal)}: those divide {of}."


def groups(job: Job) -> Iterator[Finding]:
    """Query heads fill groups; groups and tensor ranks divide each other one way or the other."""
    count, tp, kv = job.number("heads"), job.number("tp"), key_value_heads(job)
    if count and kv and count % kv:
        yield Finding(
            "divisibility_gqa", ERROR, CERTAIN if job.is_told("heads", "kv_heads") else LIKELY, (),
            f"{count} attention heads do not fill {kv} query groups: {count} is no multiple of {kv}.",
            job.evidence("heads", "kv_heads"),
            change=(f"Take as many query groups (key/value heads) as divide {count}: "
                f"{listed(common(count))}.",), weight=2,
        )  # fmt: skip
    elif kv and tp > 1 and kv % tp and tp % kv:
        yield Finding(
            "divisibility_gqa", ERROR, CERTAIN if job.is_told("tp", "kv_heads") else LIKELY, (),
            f"{kv} key/value heads and {tp} tensor-parallel ranks: neither divides the other.",
            job.evidence("kv_heads", "tp", "heads"), change=(tensor_advice(count, kv),), weight=2,
        )  # fmt: skip
    elif kv and tp > kv and kv % tp and not (count and count % tp):
        yield Finding(
            "divisibility_gqa", WARNING, POSSIBLE, (),
            f"{kv} key/value heads are fewer than {tp} tensor-parallel ranks: each is kept on {tp // kv} ranks, "
            "which megatron-core before 0.16 and tools that compute heads // ranks = 0 refuse.",
            job.evidence("kv_heads", "tp", "heads"),
            confirm="See whether the framework replicates key/value heads.",
            change=(f"Keep the tensor degree at {kv} or less: {listed(tensor_degrees(count, kv))}.",), weight=1,
        )  # fmt: skip


def sequence(job: Job) -> Iterator[Finding]:
    """Sequence parallelism splits over tensor ranks, ring attention into two pieces a rank."""
    length, tp, cp = job.number("sequence"), job.number("tp"), job.number("cp")
    pieces = (tp if tp > 1 and job.on("sequence_parallel") else 1) * (2 * cp if cp > 1 else 1)
    if length and pieces > 1 and length % pieces:
        yield Finding(
            "divisibility_sequence", ERROR, CERTAIN if job.is_told("sequence", "tp", "cp") else LIKELY, (),
            f"A sequence of {length} cannot be cut into {pieces} equal pieces (tensor ranks with sequence parallelism, "
            "two pieces for each context-parallel rank).",
            job.evidence("sequence", "tp", "cp", "sequence_parallel"),
            change=(f"Take a sequence length of {listed(neighbours(length, pieces))} (a multiple of "
                f"{pieces}).",), weight=2,
        )  # fmt: skip
    elif length and tp > 1 and length % tp:
        yield Finding(
            "divisibility_sequence", INFO, POSSIBLE, (),
            f"A sequence of {length} is no multiple of {tp} tensor ranks: with sequence parallelism it cannot be "
            f"split.",
            job.evidence("sequence", "tp"), change=(f"Take {listed(neighbours(length, tp))}.",),
        )  # fmt: skip


def ulysses(job: Job) -> Iterator[Finding]:
    """Ulysses gives each rank whole heads."""
    count, kv, degree = job.number("heads"), key_value_heads(job), job.number("ulysses")
    if degree < 2:
        return
    if (count and count % degree) or (kv and kv % degree and degree % kv):
        legal = [one for one in common(count or kv) if not kv or kv % one == 0 or one % kv == 0]
        heads = " and ".join(f"{many} {what}" for many, what in ((count, "heads"), (kv, "key/value heads")) if many)
        sure = count and job.is_told("heads", "kv_heads", "ulysses")
        yield Finding(
            "divisibility_sequence", ERROR, CERTAIN if sure else LIKELY, (),
            f"Ulysses over {degree} ranks cannot share out {heads}.",
            job.evidence("ulysses", "heads", "kv_heads"),
            change=(f"Take a Ulysses degree of {listed(legal)}, and ring attention beyond that.",), weight=2,
        )  # fmt: skip
