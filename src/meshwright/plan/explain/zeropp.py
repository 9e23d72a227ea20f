"""ZeRO++: fewer bytes between the nodes."""

from __future__ import annotations

from typing import Any

from meshwright.cost.data_parallel import Flow
from meshwright.plan.explain.common import data_flows, flow_seconds, sent_bytes, states_on_rank, zero_layout
from meshwright.plan.explain.inputs import Inputs
from meshwright.plan.explain.page import Page, account, table
from meshwright.spec.units import binary, count, duration, gib


def _split(flows: list[Flow], local_backward: bool) -> tuple[float, float]:
    """Bytes sent by collectives over all ranks, and by those inside a node."""
    inside = [f for f in flows if local_backward and f.collective == "all-gather" and f.when == "backward"]
    near = sent_bytes(inside)
    return sent_bytes(flows) - near, near


def page(topic: str, given: Inputs) -> Page:
    """The account of quantised weights (qwZ), quantised gradients (qgZ) and the secondary partition (hpZ)."""
    d, local = given.ranks, min(given.per_node, given.ranks)
    steps: dict[str, dict[str, Any]] = {
        "ZeRO-3": {},
        "+ int8 weights (qwZ)": {"quantized": ("weights",)},
        "+ copy in the node (hpZ)": {"quantized": ("weights",), "secondary_shard": local},
        "+ int4 gradients (qgZ)": {"quantized": ("weights", "gradients"), "secondary_shard": local},
    }
    rows, wide, seconds, held = [], {}, {}, {}
    for name, more in steps.items():
        layout = zero_layout(3, d, **more)
        flows = data_flows(given, layout)
        wide[name], near = _split(flows, "secondary_shard" in more)
        seconds[name] = flow_seconds(flows)
        held[name] = sum(states_on_rank(given, layout))
        rows.append((name, gib(held[name]), binary(wide[name]), binary(near), duration(seconds[name])))
    last = "+ int4 gradients (qgZ)"
    return account(
        topic,
        "ZeRO++: ZeRO-3 with a quarter of its traffic between nodes",
        what="Like ZeRO-3, but parameters travel as int8, gradients as int4, and each node keeps a second copy of the "
        "parameters, split over its devices, from which backward gathers.",
        formula=(
            "between nodes for a micro-batch, in units of the 16-bit parameters: forward gather 1 → 0.5 (qwZ), "
            "backward gather 1 → 0 (hpZ), gradients 1 → 0.25 (qgZ): 3 → 0.75",
            "second copy: N x parameter bytes / devices of a node",
        ),
        steps=(
            f"N = {count(given.parameters)} parameters, {d} ranks, {local} in a node",
            f"ZeRO-3 sends {binary(wide['ZeRO-3'])} over all ranks for a micro-batch, ZeRO++ {binary(wide[last])}",
            f"the second copy adds {gib(held[last] - held['ZeRO-3'])} to each device",
        ),
        shown=table(("", ">states", ">sent over all ranks", ">sent in the node", ">time, none hidden"), rows),
        sent="The same collectives as ZeRO-3 with fewer bits; backward's gather stays inside the node.",
        saved="Traffic, not memory: it costs memory.",
        use="ZeRO-3 over a slow network between nodes (100 Gbps and less), where gathers cannot be hidden.",
        avoid="One node, or a network that hides ZeRO-3 already: quantising costs time, and loss must be watched.",
        sources=("Wang et al. 2023, arXiv:2306.10209",),
        numbers={
            "parameters": given.parameters,
            "ranks": d,
            "per_node": local,
            "sent_over_all_ranks": wide,
            "seconds": seconds,
            "state_bytes_per_rank": held,
        },
    )
