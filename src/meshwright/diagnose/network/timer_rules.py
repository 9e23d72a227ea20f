"""Rules on printed step times: what communication takes, and how far apart the ranks are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import LIKELY, POSSIBLE, WARNING, Finding
from meshwright.diagnose.logs.cited import evidence
from meshwright.diagnose.logs.line import Line
from meshwright.diagnose.network.nccl_facts import Nccl
from meshwright.diagnose.network.timers import Extreme, Timer, Times

LEAST_STEPS = 3
"""Steps below which nothing is said: the first ones compile, allocate and read."""
LARGE_SHARE = 0.4
"""Of a step: communication from which it rules. Overlapped training keeps it below 0.2."""
APART = 0.15
"""(most - least) / most over ranks: healthy ranks of equal work differ by about 5 % (Megatron's README: 1 to 3 %)."""
SLOWER = 0.10
"""Of Megatron's straggler lines: compute is the same work on all ranks of a stage."""
DATA_SHARE = 0.2
"""Of a step in get_batch: loaders that prefetch need less than 0.01."""
COMPUTE = ("forward-compute", "backward-compute", "forward-backward")
FEWEST_LINES = 3
"""Intervals in which one rank must be the slowest; a GPU is slow always, noise moves between ranks."""


def find_times(facts: Facts) -> list[Finding]:
    """What printed times say."""
    known = facts.of(Times)
    return [*_deepspeed(known, facts), *_megatron_share(known), *_apart(known), *_data(known), *_stragglers(known)]


def _middle(timer: Timer | None, most: bool = True) -> float:
    kept = () if timer is None else timer.most if most else timer.least
    return median(kept) if len(kept) >= LEAST_STEPS else 0.0


def _deepspeed(known: Times, facts: Facts) -> Iterator[Finding]:
    """Gradients and parameters on the wire against forward and backward (gpt-neox#965 is solved from these lines)."""
    micro = "forward_microstep" in known.timers
    names = [f"{name}{'_microstep' if micro else ''}" for name in ("forward", "backward", "step", "backward_allreduce")]
    forward, backward, step, reduce_ = (_middle(known.timers.get(name)) for name in names)
    gather = known.timers.get("optimizer_allgather")
    whole, sent = forward + backward + step, reduce_ + (_middle(gather) if gather and step > 0 else 0.0)
    timer = known.timers.get(names[3]) or gather
    if timer is None or not whole or sent < LARGE_SHARE * whole:
        return
    nodes = facts.of(Nccl).nodes
    yield Finding(
        "zero3_internode" if nodes > 1 else "small_messages", WARNING, POSSIBLE, (),
        f"Communication takes {min(sent / whole, 1.0):.0%} of a step of {whole:,.0f} ms (reduction {reduce_:,.0f} ms, "
        f"all-gather {max(sent - reduce_, 0.0):,.0f} ms){f' on {nodes} nodes' if nodes > 1 else ''}.",
        (evidence(timer.line), *((evidence(gather.line),) if gather else ())),
        "nccl-tests on the same nodes; whether overlap_comm is on (then these times are waits, not transfers).",
        (
            "overlap_comm true, contiguous_gradients true, buckets of 5e8.",
            "Accumulate more micro-batches per step, so that gradients are sent less often.",
            "Across nodes: zero_hpz_partition_size = devices per node, or ZeRO-1/2 where the model fits.",
        ),
        timer.line.when,
    )  # fmt: skip


def _megatron_share(known: Times) -> Iterator[Finding]:
    """`grads-reduce-scatter`, `all-grads-sync`, `params-all-gather` or the older `backward-params-all-reduce`."""
    names = ("all-grads-sync", "backward-params-all-reduce", "grads-all-reduce", "grads-reduce-scatter")
    sync = next((known.timers[name] for name in names if name in known.timers), None)
    gather = known.timers.get("params-all-gather")
    compute = _middle(known.timers.get("forward-backward")) or (
        _middle(known.timers.get("forward-compute")) + _middle(known.timers.get("backward-compute"))
    )
    sent = _middle(sync, most=False) + _middle(gather, most=False)
    # The least over ranks: the others also wait for the slowest one there.
    whole = compute + sent + _middle(known.timers.get("optimizer"))
    if sync is None or not compute or sent < LARGE_SHARE * whole:
        return
    yield Finding(
        "slow_network_other", WARNING, POSSIBLE, (),
        f"Reducing gradients{' and gathering parameters' if gather else ''} takes {sent:,.0f} ms of a step of "
        f"{whole:,.0f} ms ({sent / whole:.0%}), outside of the compute.",
        (evidence(sync.line),), "nccl-tests on the same nodes against the rate of their NICs.",
        (
            "--overlap-grad-reduce, and --overlap-param-gather with the distributed optimizer.",
            "A larger global batch: gradients are sent once a step, however many micro-batches it has.",
            "If the time is far above bytes / bandwidth, look at transport and NICs (NCCL_DEBUG=INFO).",
        ),
        sync.line.when,
    )  # fmt: skip


def _apart(known: Times) -> Iterator[Finding]:
    """Compute that takes some ranks much longer than others, in the median step."""
    for name in COMPUTE:
        timer = known.timers.get(name)
        most, least = _middle(timer), _middle(timer, most=False)
        if timer is None or not known.ranges or not most or (most - least) / most < APART:
            continue
        yield Finding(
            "pipeline_imbalance", WARNING, POSSIBLE, (),
            f"{name} takes from {least:,.0f} to {most:,.0f} ms over ranks, {(most - least) / most:.0%} apart: stages "
            "of unequal work, or a slow device.",
            (evidence(timer.line),), "--timing-log-option all: whether the slow ranks are those of one stage.",
            (
                "If they are one stage: count embedding and output layer as layers when splitting "
                "(--account-for-embedding-in-pipeline-split, --account-for-loss-in-pipeline-split, or a layout).",
                "If it is one rank: its clocks, temperature and neighbours.",
            ),
            timer.line.when,
        )  # fmt: skip
        return


def _data(known: Times) -> Iterator[Finding]:
    """The batch generator against the step that it feeds."""
    timer = known.timers.get("batch-generator") or known.timers.get("batch_input")
    compute = _middle(known.timers.get("forward-backward")) or (
        _middle(known.timers.get("forward-compute")) + _middle(known.timers.get("backward-compute"))
    )
    spent = _middle(timer)
    if timer is not None and compute and spent > DATA_SHARE * compute:
        yield _late_data(
            f"The batch generator takes {spent:,.0f} ms beside {compute:,.0f} ms of forward and backward.",
            timer.line,
            (),
        )


def _late_data(cause: str, line: Line, ranks: tuple[int, ...]) -> Finding:
    return Finding(
        "dataloader_bound", WARNING, LIKELY, ranks, cause, (evidence(line),),
        "The same job with synthetic data (--mock-data).",
        ("More workers and prefetching; local or packed shards; decode beforehand.",), line.when, weight=1,
    )  # fmt: skip


def _stragglers(known: Times) -> Iterator[Finding]:
    """Megatron's lines: least and most round-trip over ranks, with the rank of each."""
    slow, fast = known.extremes.get("MxRtt", ()), known.extremes.get("MnRtt", ())
    pairs = [(high, low) for high, low in zip(slow, fast, strict=False) if high.value > 0]
    if not pairs:
        return
    data = known.extremes.get("MxDRtt", ())
    far_data = [one for one, (high, _) in zip(data, pairs, strict=False) if one.value > DATA_SHARE * high.value]
    if far_data and len(far_data) * 2 > len(pairs):
        most, ranks = max(one.value for one in far_data), tuple(sorted({one.rank for one in far_data}))
        longest = max(high.value for high, _ in pairs)
        yield _late_data(
            f"get_batch takes up to {most:,.0f} ms of a round of {longest:,.0f} ms.", far_data[0].line, ranks
        )
        return
    late = [(high, low) for high, low in pairs if (high.value - low.value) / high.value > SLOWER]
    if late:
        yield _slow_rank(late, known)


def _slow_rank(late: Sequence[tuple[Extreme, Extreme]], known: Times) -> Finding:
    (rank, often), *_ = Counter(high.rank for high, _ in late).most_common()
    steady = often >= FEWEST_LINES and often > len(late) / 2
    high, low = next(pair for pair in late if pair[0].rank == rank)
    clock = next((one for one in known.extremes.get("MnClk", ()) if one.rank == rank), None)
    hot = next((one for one in known.extremes.get("MxTmp", ()) if one.rank == rank), None)
    signs = [f"the lowest clock ({clock.value:g} MHz)"] if clock else []
    signs += [f"the highest temperature ({hot.value:g} °C)"] if hot else []
    told = f" It has {' and '.join(signs)}." if signs else ""
    return Finding(
        "straggler_gpu", WARNING, LIKELY if signs and steady else POSSIBLE, (rank,),
        f"Rank {rank} takes {high.value:,.0f} ms for a round that rank {low.rank} does in {low.value:,.0f} ms, the "
        f"slowest in {often} of {len(late)} uneven intervals.{told}",
        (evidence(high.line),), f"nvidia-smi -q -d CLOCK,PERFORMANCE on the node of rank {rank}; nccl-tests by pairs.",
        (f"Take rank {rank}'s device out of the job and see whether the slow one moves.",
         "Power cap, cooling, another process on the device."),
        high.line.when, weight=int(bool(signs)),
    )  # fmt: skip
