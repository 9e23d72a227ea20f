"""Capacity: whether what is alive could fit at all, and what the model's state alone needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from meshwright.diagnose.memory.job import Job
from meshwright.diagnose.memory.oom import Oom
from meshwright.diagnose.memory.sizes import percent, shown
from meshwright.spec.errors import RequestError

STATE_SHARE = 0.7
"""Of the capacity: a state above it leaves no room for activations (research, section 3; to be calibrated)."""
STATE_BYTES = 16
"""Of a parameter under Adam: bf16 weight and gradient, fp32 master, two fp32 moments (ZeRO, arXiv 1910.02054, 3.1);
all in fp32 it is 16 too."""
USUAL_TOKENS = 2048
"""Of a sequence, where nothing tells it: what sharding saves hardly depends on it."""
UNSHARDED = {"zero1": 4, "zero2": 2, "zero3": 0, "fsdp": 0, "ddp": 16}
"""Of `STATE_BYTES`, those that every rank keeps whole."""


@dataclass(frozen=True, slots=True)
class State:
    """What a model's parameters, gradients and optimizer states need on one device."""

    parameters: int
    bytes: float
    text: str


@dataclass(frozen=True, slots=True)
class Saving:
    """What the planner says a change saves at the peak."""

    text: str
    of_state: bool
    """Whether it takes from parameters, gradients and optimizer states."""


def state_of(job: Job) -> State | None:
    """The state of a fully trained model under Adam; None: the model or the layout is not known, or it has adapters."""
    if job.config is None or job.adapters or not job.world or not job.sharding:
        return None
    from meshwright.cost.parameters import parameters
    from meshwright.spec.model_config import read_config

    try:
        count = parameters(read_config(job.config)).total
    except (RequestError, ValueError, TypeError, ArithmeticError):
        return None
    parts = max(1, job.tensor) * max(1, job.pipeline)
    shards = max(1, job.world // parts)
    whole = UNSHARDED[job.sharding]
    size = count * (whole + (STATE_BYTES - whole) / shards) / parts
    each = f"({whole} + {STATE_BYTES - whole} / {shards})" if whole < STATE_BYTES else f"{STATE_BYTES}"
    text = (
        f"{count / 1e9:.2f} billion parameters x {each} bytes"
        f"{f' / {parts} model-parallel ranks' if parts > 1 else ''} = {shown(size)} on each device"
    )
    return State(count, size, text)


def too_large(state: State | None, oom: Oom) -> str:
    """Why the state alone leaves no room; "": it does not, or it is not known."""
    if state is None or not oom.capacity or state.bytes < STATE_SHARE * oom.capacity:
        return ""
    return f"{state.text}, {percent(state.bytes, oom.capacity)} of {shown(oom.capacity)}"


def savings(job: Job) -> Sequence[Saving]:
    """What each change would save; empty where model, batch or ranks are not known."""
    if job.config is None or job.adapters or not job.world or not job.sharding or not job.batch or job.pipeline > 1:
        return ()
    try:
        return tuple(_savings(job))
    except (RequestError, ValueError, TypeError, ArithmeticError):
        return ()


def _savings(job: Job) -> Sequence[Saving]:
    batch, tensor = job.batch, max(1, job.tensor)
    data = max(1, job.world // tensor)
    shard = {"ddp": "ddp", "fsdp": "zero3:"}.get(job.sharding, f"{job.sharding}:")
    rest = f" tp{tensor}" if tensor > 1 else ""
    now = f"{shard}{data}{rest} mbs{batch}"
    tries = [
        ("Recompute all activations", f"{now} ac:full"),
        (
            "Shard parameters, gradients and optimizer states over all data-parallel ranks",
            f"zero3:{data}{rest} mbs{batch}",
        ),
    ]
    if batch > 1:
        tries.insert(0, (f"Halve the micro-batch to {batch // 2}", f"{shard}{data}{rest} mbs{batch // 2}"))
    tokens = job.sequence or USUAL_TOKENS
    assumed = "" if job.sequence else f" (with {tokens:,} tokens in a sequence, as none are told)"
    price = _pricer(job, tokens, batch * data)
    before = price(now)
    saved = [(before - price(layout), what) for what, layout in tries if layout != now]
    return [
        Saving(
            f"{what}: the estimate's peak falls from {shown(before)} by {shown(size)}{assumed}.",
            what.startswith("Shard"),
        )
        for size, what in saved
        if size > 0
    ]


def _pricer(job: Job, tokens: int, global_batch: int) -> Callable[[str], float]:
    """A function from a layout to the peak, bytes. The device is any: the peak does not depend on its capacity."""
    from meshwright.cost.estimate import estimate
    from meshwright.spec.cluster_text import parse_cluster
    from meshwright.spec.model_config import read_config
    from meshwright.spec.notation import parse_layouts
    from meshwright.spec.workload import make_workload

    assert job.config is not None
    model = read_config(job.config)
    cluster = parse_cluster(f"{job.world}xH100")
    workload = make_workload(tokens, global_batch)

    def price(layout: str) -> float:
        return estimate(model, cluster, workload, parse_layouts(layout)[0]).memory.peak_bytes

    return price
