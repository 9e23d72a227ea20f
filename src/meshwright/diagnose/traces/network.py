"""Communication: how fast messages were, how much of the time they take unhidden, and whose they are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import INFO, LIKELY, POSSIBLE, WARNING, Evidence, Finding
from meshwright.diagnose.traces.collectives import bus_bandwidth
from meshwright.diagnose.traces.jobs import jobs, shared
from meshwright.diagnose.traces.ranks import Collective, Rank, Traces, label, shares
from meshwright.spec.collective import ALL_GATHER, REDUCE_SCATTER

SMALL = 10e6
"""Bytes. Below it the latency of a collective over several nodes is most of its time (pytorch#118421 on buckets)."""
SMALL_SHARE = 0.5
FAR_BELOW = 0.25
"""Of the bandwidth that large messages reach in the same trace."""
EXPOSED, EXPOSED_MUCH = 0.25, 0.4
"""Shares of the time without computing that are worth a line, and a warning where waiting is known to be no part."""
TENSOR_EXPOSED = 0.3
"""Tensor parallelism within NVLink leaves 10 to 20 % (Megatron-LM, arXiv 2104.04473, section 5.4)."""
NODE = 8
"""Devices of a node where the trace does not say."""
NVLINK = 50e9
"""Bytes per second of bus bandwidth that a message of `SMALL` or more exceeds on any NVLink, and no PCIe."""
_TENSOR = re.compile(r"(?:^|[_\W])tp(?:$|[_\W])|tensor", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Transfer:
    """A collective without waiting, as well as it is known."""

    call: Collective
    seconds: float
    """The shortest of all members; where only one is traced, the lower quartile of its like."""
    by_members: bool

    @property
    def bandwidth(self) -> float | None:
        """On the bus, bytes per second."""
        if self.call.bytes is None or self.call.size is None:
            return None
        return bus_bandwidth(self.call.kind, self.call.bytes, self.seconds, self.call.size)


def transfers(job: Sequence[Rank]) -> list[Transfer]:
    """Of the first rank of a job that has collectives."""
    rank = next((one for one in job if one.collectives), None)
    if rank is None:
        return []
    least = {id(call): one.seconds for one in shared(job) for call in one.calls.values()}
    like: dict[tuple[str, str, float | None], list[float]] = {}
    for call in rank.collectives:
        like.setdefault((call.group, call.kind, call.bytes), []).append(call.seconds)
    quartile = {key: quantiles(of, n=4)[0] if len(of) > 3 else min(of) for key, of in like.items()}
    return [
        Transfer(call, least.get(id(call), min(call.seconds, quartile[call.group, call.kind, call.bytes])),
                 id(call) in least)
        for call in rank.collectives
    ]  # fmt: skip


def told(job: Sequence[Rank]) -> Iterator[str]:
    """The bandwidth that large messages reach, for each kind of collective and size of group."""
    kinds: dict[tuple[str, int], list[Transfer]] = {}
    for one in transfers(job):
        if one.bandwidth is not None and (one.call.bytes or 0.0) >= SMALL:
            kinds.setdefault((one.call.kind, one.call.size or 0), []).append(one)
    for (kind, size), of in sorted(kinds.items()):
        least = "" if all(one.by_members for one in of) else "at least "
        yield (
            f"{kind} of {SMALL / 1e6:.0f} MB and more over {size} ranks: {len(of)}, {least}"
            f"{median(one.bandwidth or 0.0 for one in of) / 1e9:.1f} GB/s on the bus"
        )


def small_messages(facts: Facts) -> Iterator[Finding]:
    """Most of the time of collectives goes into messages too small to be fast."""
    for job in jobs(facts.of(Traces).ranks):
        known = [one for one in transfers(job) if one.bandwidth is not None]
        small = [one for one in known if (one.call.bytes or 0) < SMALL]
        large = [bandwidth for one in known if (one.call.bytes or 0) >= SMALL and (bandwidth := one.bandwidth)]
        seconds, whole = sum(one.seconds for one in small), sum(one.seconds for one in known)
        if not small or not large or seconds <= SMALL_SHARE * whole:
            continue
        reached = median(one.bandwidth or 0.0 for one in small)
        if reached >= FAR_BELOW * median(large):
            continue
        rank = next(one for one in job if one.collectives)
        hurts = _share(rank, small) >= EXPOSED / 2
        yield Finding(
            "small_messages", WARNING if hurts else INFO, LIKELY if all(one.by_members for one in small) else POSSIBLE,
            (),
            f"{seconds / whole:.0%} of the time of collectives goes into {len(small):,} messages below "
            f"{SMALL / 1e6:.0f} MB, which reach {reached / 1e9:.2f} GB/s on the bus; larger ones reach "
            f"{median(large) / 1e9:.1f} GB/s.",
            (Evidence(rank.path, "; ".join(histogram(known)), rank=rank.rank),),
            "nccl-tests at these sizes: the time hardly depends on the size.",
            ("Send fewer and larger messages: DDP's bucket_cap_mb of 100 or more, FSDP units of a block.",
             "DeepSpeed: reduce_bucket_size, stage3_param_persistence_threshold, leaf modules for experts.",
             "See in a trace that what is sent later is still hidden."),
            weight=1,
        )  # fmt: skip


def histogram(of: Sequence[Transfer]) -> list[str]:
    """Count, seconds and bandwidth by kind and power of ten of the size."""
    by_size: dict[tuple[str, int], list[Transfer]] = {}
    for one in of:
        by_size.setdefault((one.call.kind, len(str(int(one.call.bytes or 0)))), []).append(one)
    return [
        f"{kind} below {10**digits / 1e6:g} MB: {len(same)}, {sum(one.seconds for one in same) * 1e3:.2f} ms, "
        f"{median(one.bandwidth or 0.0 for one in same) / 1e9:.2f} GB/s"
        for (kind, digits), same in sorted(by_size.items())
    ]


def _share(rank: Rank, of: Sequence[Transfer]) -> float:
    """Of the rank's time, that these take without computing and without waiting."""
    window = sum(step.busy.window for step in rank.steps) or rank.whole.window
    inside = [one for one in of if not rank.steps or one.call.step >= 0]
    share = sum(min(one.call.exposed, one.seconds) for one in inside) / window if window > 0 else 0.0
    return min(share, shares(rank)[1])  # two at once count once


def exposed(facts: Facts) -> Iterator[Finding]:
    """Communication that nothing hides, by whose it is: tensor parallel, ZeRO-3 over nodes, or any other."""
    for job in jobs(facts.of(Traces).ranks):
        found = transfers(job)
        rank = next((one for one in job if one.collectives), None)
        if rank is None:
            continue
        tensor = [one for one in found if _TENSOR.search(one.call.description)]
        sharded = [one for one in found if one.call.kind in (ALL_GATHER, REDUCE_SCATTER) and one not in tensor]
        if (share := _share(rank, tensor)) >= TENSOR_EXPOSED:
            yield _of_tensor(rank, tensor, share)
        elif (share := _share(rank, sharded)) >= EXPOSED and _gathers_over_nodes(rank, sharded):
            yield _of_zero3(rank, sharded, share)
        elif (share := _share(rank, found)) >= EXPOSED:
            yield _of_any(rank, found, share)


def _of_tensor(rank: Rank, of: Sequence[Transfer], share: float) -> Finding:
    speed, size = _speed(of), max((one.call.size or 0 for one in of), default=0)
    over = size > (rank.devices or NODE)
    slow = over or (speed is not None and speed < NVLINK and all(one.by_members for one in of))
    where = f", and its group of {size} is more than a node's {rank.devices or NODE} devices" if over else ""
    return Finding(
        "tp_comm_bound", WARNING, LIKELY if slow else POSSIBLE, (),
        f"Collectives of the tensor-parallel group take {share:.0%} of the time with nothing computed beside"
        f"{_at(speed)}{where}.",
        (Evidence(rank.path, _sizes(of), rank=rank.rank),),
        "nvidia-smi topo -m: the group's devices must reach each other over NVLink.",
        ("Keep tensor parallelism within a node's NVLink; split layers over nodes with a pipeline.",
         "A smaller degree with more sharding; sequence parallelism; overlapped tensor parallelism."),
        weight=2,
    )  # fmt: skip


def _sizes(of: Sequence[Transfer]) -> str:
    return "; ".join(histogram([one for one in of if one.bandwidth])[:6])


def _gathers_over_nodes(rank: Rank, of: Sequence[Transfer]) -> bool:
    """More all-gathers than reduce-scatters, as parameters come for forward and for backward, over many devices."""
    gathers = sum(one.call.kind == ALL_GATHER for one in of)
    size = max((one.call.size or 0 for one in of), default=0)
    speed = _speed(of)
    return gathers >= 1.5 * (len(of) - gathers) > 0 and size > (rank.devices or NODE) and (speed or 0.0) < 2 * NVLINK


def _of_zero3(rank: Rank, of: Sequence[Transfer], share: float) -> Finding:
    size = max(one.call.size or 0 for one in of)
    return Finding(
        "zero3_internode", WARNING, LIKELY if all(one.by_members for one in of) else POSSIBLE, (),
        f"Parameters are gathered over {size} devices, so over nodes, and again for backward: {share:.0%} of the time "
        f"goes by with nothing computed beside{_at(_speed(of))}.",
        (Evidence(rank.path, _sizes(of), rank=rank.rank),),
        "The same with parameters sharded within a node only.",
        ("Shard within a node: HSDP, or ZeRO++ zero_hpz_partition_size = devices of a node.",
         "ZeRO-2 where parameters fit; more micro-batches for each gather; RDMA between nodes."),
        weight=2,
    )  # fmt: skip


def _of_any(rank: Rank, of: Sequence[Transfer], share: float) -> Finding:
    sure = rank.on_gpu and bool(of) and all(one.by_members for one in of)
    return Finding(
        "slow_network_other", WARNING if sure and share >= EXPOSED_MUCH else INFO, POSSIBLE, (),
        f"Collectives take {share:.0%} of {label(rank)}'s time with nothing computed beside{_at(_speed(of))}"
        + ("." if sure else "; how much of it is waiting for others, this trace alone does not say."),
        (Evidence(rank.path, _sizes(of) or "sizes are not traced", rank=rank.rank),),
        "Traces of all ranks of the same steps; nccl-tests on the same nodes.",
        ("See that gradients and parameters are sent while others are computed (bucket order, prefetching).",
         "Fewer or larger messages; sharding within a node; a faster link."),
    )  # fmt: skip


def _speed(of: Sequence[Transfer]) -> float | None:
    """Bus bandwidth of large messages, or of all where none is large."""
    known = [(one.call.bytes or 0.0, bandwidth) for one in of if (bandwidth := one.bandwidth)]
    large = [bandwidth for size, bandwidth in known if size >= SMALL]
    return median(large or [bandwidth for _, bandwidth in known]) if known else None


def _at(speed: float | None) -> str:
    return "" if speed is None else f", at {speed / 1e9:.1f} GB/s on the bus"
