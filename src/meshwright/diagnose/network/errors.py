"""Rules on transfers that a network device gave up: which link, by counting who is in most of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import ERROR, LIKELY, POSSIBLE, Finding
from meshwright.diagnose.logs.cited import evidence
from meshwright.diagnose.network.nccl_facts import Completion, Nccl

FLUSHED = 5
"""IBV_WC_WR_FLUSH_ERR: a consequence of an earlier error on the same connection (libibverbs, ibv_wc_status)."""
MEANING = {
    12: "retries exceeded: the other end did not answer",
    13: "receiver not ready",
    10: "remote access error",
    11: "remote operation error",
    4: "local protection error",
    9: "remote invalid request",
}
"""ibv_wc_status in words."""
MOST_OF = 0.5
"""Share of the pairs from which one end is held for the faulty one: more than half cannot be true of two ends."""
LEAST_PAIRS = 3
"""Pairs below which no end is told from the other."""


def find_errors(facts: Facts) -> list[Finding]:
    """One Finding for all transfers that failed, and one for each device that reported an event."""
    known = facts.of(Nccl)
    return [*_completions(known.completions), *_events(known)]


def _completions(all_of_them: Sequence[Completion]) -> Iterator[Finding]:
    first_hand = [one for one in all_of_them if one.status != FLUSHED] or list(all_of_them)
    if not first_hand:
        return
    first = min(first_hand, key=lambda one: (one.line.when is None, one.line.when or 0.0))
    common = _common(first_hand)
    blamed = f" {common} is in most of them." if common else ""
    flushed = len(all_of_them) - len(first_hand)
    where = f"{first.host}{f' ({first.hca})' if first.hca else ''} and {first.peer or 'a peer'}"
    yield Finding(
        "network_error", ERROR, LIKELY if common else POSSIBLE, (),
        f"{len(first_hand)} transfers over InfiniBand or RoCE failed, first between {where}: status {first.status}"
        f"{f', {MEANING[first.status]}' if first.status in MEANING else ''}.{blamed}"
        f"{f' {flushed} flushed ones are consequences.' if flushed else ''}",
        tuple(evidence(one.line) for one in (first, *(one for one in first_hand if one is not first))[:6]),
        "ibstat, perfquery or rdma statistic of both ends; ib_write_bw between these two; the switch's counters.",
        (
            f"{'Take ' + common + ' out of the job' if common else 'Test the links pair by pair'}, and replace cable, "
            "transceiver or HCA that shows errors.",
            "If all pairs fail: routing, NCCL_IB_GID_INDEX, PFC or the subnet manager.",
            "Only then raise NCCL_IB_TIMEOUT (22) and NCCL_IB_RETRY_CNT (7).",
        ),
        first.line.when, weight=2,
    )  # fmt: skip


def _common(found: Sequence[Completion]) -> str:
    """The end that most pairs of ends share; "": none, or too few pairs."""
    pairs = {((one.host, one.hca), one.peer) for one in found if one.peer}
    if len(pairs) < LEAST_PAIRS:
        return ""
    ends = Counter[str]()
    for (host, hca), peer in pairs:
        ends[f"{hca} of {host}" if hca else host] += 1
        ends[f"peer {peer}"] += 1
    (end, often), *rest = ends.most_common()
    others = rest[0][1] if rest else 0
    return end if often > MOST_OF * len(pairs) and often > others else ""


def _events(known: Nccl) -> Iterator[Finding]:
    """`mlx5_3:1 Got async … event: port error`: the device itself reports it."""
    bad = [
        (hca, event, line) for hca, event, line in known.events if "error" in event.lower() or "fatal" in event.lower()
    ]
    if bad:
        hca, event, line = bad[0]
        yield Finding(
            "network_error", ERROR, LIKELY, (), f"The network device {hca} reported: {event[:60]}.",
            tuple(evidence(each[2]) for each in bad[:4]), "ibstat and dmesg of that node.",
            (f"Test {hca}'s cable, transceiver and switch port; take the node out until it is clean.",),
            line.when, weight=2,
        )  # fmt: skip
