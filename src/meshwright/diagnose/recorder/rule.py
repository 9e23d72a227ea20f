"""From dumps to Findings: a mismatch first, as what follows it is a consequence; else who is waited for."""

from __future__ import annotations

from collections.abc import Sequence

from meshwright.diagnose.finding import CERTAIN, ERROR, INFO, LIKELY, POSSIBLE, WARNING, Evidence, Finding
from meshwright.diagnose.recorder.late import Late, latest
from meshwright.diagnose.recorder.mismatch import Mismatch, first_mismatch
from meshwright.diagnose.recorder.read import Dump, Entry
from meshwright.diagnose.recorder.steps import begins_step
from meshwright.diagnose.recorder.waits import Wait, culprits, members, waits
from meshwright.diagnose.told import ranks_text

_CHANGES = {
    "hardware_fault": ("If its log ends without an error, look at its node: dmesg, nvidia-smi, the scheduler's log.",),
    "rank_conditional_collective": (
        "Call the barrier, or share the flag, on every rank: not in `if rank == 0`, nor behind a value that differs.",
    ),
    "uneven_inputs": (
        "Give every rank the same number of batches: drop_last, equal shards, or DDP's Join.",
        "If it only waited for data, more workers; or a longer timeout of init_process_group.",
    ),
    "long_non_collective_section": (
        "If it is in a branch that others do not take, call the collective on every rank.",
        "If it was only late (data, checkpoint, evaluation), raise the timeout of init_process_group.",
    ),
}
WITNESSES = 3
"""Waits that are shown for each culprit."""


def find_hangs(dumps: Sequence[Dump]) -> list[Finding]:
    """What the dumps of one job say of a hang; nothing where they say nothing."""
    mismatch = first_mismatch(dumps)
    if mismatch is not None:
        return [_of_mismatch(mismatch, dumps)]
    edges = waits(dumps)
    found = culprits(edges)
    if found:
        held: dict[int, list[Wait]] = {}
        for edge in edges:
            held.setdefault(edge.member, []).append(edge)
        return [_of_culprit(rank, held[rank], dumps) for rank in found]
    if edges:
        return [_of_circle(edges, dumps)]
    late = latest(dumps)
    return [*_of_joined(dumps), *([_of_late(late, dumps)] if late is not None else [])]


def _of_culprit(rank: int, edges: Sequence[Wait], dumps: Sequence[Dump]) -> Finding:
    """Of the edges that end at `rank`."""
    held = sorted(edges, key=lambda edge: edge.entry.created_ns)
    first, own = held[0].entry, next((dump for dump in dumps if dump.rank == rank), None)
    did = _did(own, first)
    waiting = ranks_text([edge.rank for edge in held]).capitalize() + (" wait" if len(held) > 1 else " waits")
    evidence = [
        Evidence(_path(edge.rank, dumps), f"rank {edge.rank} waits in {_told(edge.entry)}", rank=edge.rank)
        for edge in held[:WITNESSES]
    ]
    if own is not None and own.entries:
        last = own.entries[-1]
        evidence.append(Evidence(own.path, f"rank {rank}'s last: {_told(last)} {last.frame}".strip(), rank=rank))
    kind = _kind(rank, held[0], own, dumps)
    first_of_all = f"Read rank {rank}'s log before the others': theirs tell of the timeout that follows."
    return Finding(
        category=kind,
        severity=ERROR,
        confidence=POSSIBLE if own is None else CERTAIN if own.entries else LIKELY,
        ranks=(rank,),
        cause=f"{waiting} for rank {rank}, first in {_told(first)}, which it never entered: it {did}.",
        evidence=tuple(evidence),
        confirm=f"The log of rank {rank} and its stack (py-spy dump) at that time; dmesg of its node for Xid errors.",
        change=(first_of_all, *_CHANGES[kind]),
    )


def _did(own: Dump | None, missed: Entry) -> str:
    """What the rank that is waited for did instead."""
    if own is None:
        return "left no dump, so it died or was not asked for one"
    if not own.entries:
        return "has an empty dump, so it was blocked on the host or had done nothing for long"
    last = own.entries[-1]
    before = (missed.created_ns - last.created_ns) / 1e9 if missed.created_ns and last.created_ns else 0.0
    ago = f" ({before:.1f} s before the first came there)" if before > 0 else ""
    return f"did {_told(last)} last{ago} and then nothing, so it died, or is busy or blocked outside of collectives"


def _kind(rank: int, wait: Wait, own: Dump | None, dumps: Sequence[Dump]) -> str:
    """The category, from what the rank that is waited for did not enter, and when in a step."""
    if own is None:
        return "hardware_fault"
    entry = wait.entry
    if entry.operation == "barrier" or entry.inputs in (((1,),), ((),)):
        # A barrier, a flag or a value that is shared: most often in a branch that not every rank takes.
        return "rank_conditional_collective"
    waiter = next(dump for dump in dumps if dump.rank == wait.rank)
    history = [one for one in waiter.entries if one.group == entry.group and one.sequence < entry.sequence]
    return "uneven_inputs" if entry.peers is None and begins_step(entry, history) else "long_non_collective_section"


def _of_late(late: Late, dumps: Sequence[Dump]) -> Finding:
    told = f"first late to {_told(late.entry)} {late.entry.frame}".strip()
    return Finding(
        category="straggler_cpu",
        severity=WARNING,
        confidence=LIKELY,
        ranks=(late.rank,),
        cause=f"Rank {late.rank} comes late to {late.times} of {late.of} collectives of group {late.group}, by "
        f"{late.seconds * 1e3:.0f} ms each time: {late.share:.0%} of the time, in which the others wait.",
        evidence=(Evidence(_path(late.rank, dumps), told, rank=late.rank),),
        confirm=f"A trace of rank {late.rank} and of one other: what it does before that collective.",
        change=(
            "If it loads data or runs Python there: more workers, the same work on every rank.",
            "If its kernels are slower: nvidia-smi -q -d CLOCK,PERFORMANCE on its node, and another device.",
        ),
    )


def _of_mismatch(found: Mismatch, dumps: Sequence[Dump]) -> Finding:
    by_rank = dict(found.entries)
    other = next((entry for rank, entry in found.entries if rank not in found.odd), None)
    odd = by_rank[found.odd[0]]
    against = f"; the others do {_told(other)}" if other is not None else "; no two of them agree"
    return Finding(
        category="mismatched_collectives",
        severity=ERROR,
        confidence=CERTAIN if found.majority else POSSIBLE,
        ranks=found.odd,
        cause=f"{ranks_text(found.odd).capitalize()} and the other members of a group differ in the {found.what} of "
        f"the same collective: {_told(odd)}{against}.",
        evidence=tuple(
            Evidence(_path(rank, dumps), f"rank {rank}: {_told(entry)} {entry.frame}".strip(), rank=rank)
            for rank, entry in found.entries[:8]
        ),
        confirm="TORCH_DISTRIBUTED_DEBUG=DETAIL stops at the first collective that differs.",
        change=(
            "Make every rank take the same branch before this line.",
            "Compare the shapes that go into it by rank.",
        ),
    )


def _of_circle(edges: Sequence[Wait], dumps: Sequence[Dump]) -> Finding:
    ranks = tuple(sorted({edge.rank for edge in edges} & {edge.member for edge in edges}))
    return Finding(
        category="p2p_ordering",
        severity=ERROR,
        confidence=LIKELY,
        ranks=ranks,
        cause=f"{ranks_text(ranks).capitalize()} wait for each other in a circle: none has entered what another "
        "waits in.",
        evidence=tuple(
            Evidence(_path(e.rank, dumps), f"rank {e.rank} waits for {e.member} in {_told(e.entry)}", rank=e.rank)
            for e in edges[:8]
        ),
        confirm="The order in which these ranks enqueue the operations that are shown.",
        change=("Enqueue sends, receives and collectives in the same order on all ranks, or batch_isend_irecv.",),
    )


def _of_joined(dumps: Sequence[Dump]) -> list[Finding]:
    """NCCL tells what has completed: waiting with all members there is no desync."""
    open_ones = [(dump, entry) for dump in dumps if dump.backend == "nccl" for entry in dump.entries if not entry.done]
    groups = sorted({entry.group for _, entry in open_ones})
    known = members(dumps)
    if not groups or any(len(known.get(group, ())) < 2 for group in groups):
        return []
    cause = (
        f"All members have joined what is not finished ({len(groups)} groups): not a desync. Either it is slow, or a "
        "kernel or link is stuck."
    )
    joined = Finding(
        category="concurrent_communicators" if len(groups) > 1 else "slow_network_other",
        severity=INFO,
        confidence=POSSIBLE,
        ranks=(),
        cause=cause,
        evidence=tuple(Evidence(dump.path, _told(entry), rank=dump.rank) for dump, entry in open_ones[:WITNESSES]),
        confirm="nccl-tests on the same nodes; NCCL_DEBUG=INFO; nvidia-smi of each device.",
    )
    return [joined]


def _told(entry: Entry) -> str:
    """A collective in words."""
    place = f"group {entry.group}" + (f" ({entry.description})" if entry.description not in ("", "undefined") else "")
    if entry.peers is not None:
        return f"{entry.operation} {entry.peers[0]}→{entry.peers[1]} number {entry.sequence} of {place}"
    shapes = ", ".join("×".join(map(str, shape)) or "scalar" for shape in entry.inputs)
    return f"{entry.operation} number {entry.sequence} of {place}" + (f", input {shapes}" if shapes else "")


def _path(rank: int, dumps: Sequence[Dump]) -> str:
    return next((dump.path for dump in dumps if dump.rank == rank), "")
