"""What several pages share: layouts as columns, data-parallel traffic, the rank counts of a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from meshwright.cost.collectives import Tiers, groups, tiers
from meshwright.cost.compute import rates
from meshwright.cost.data_parallel import Flow, gather_flows, step_flows
from meshwright.cost.layer import Exchange, layer_exchanges
from meshwright.cost.schedules import check
from meshwright.cost.shares import RankParameters
from meshwright.cost.states import state_shares
from meshwright.plan.explain.inputs import Inputs
from meshwright.spec.columns import LayoutColumns, columns_of
from meshwright.spec.implementation import load_implementation
from meshwright.spec.layout import Layout
from meshwright.spec.units import duration, gb_per_s


def columns(**fields: Any) -> LayoutColumns:
    """A Layout's fields as plain numbers."""
    return columns_of(Layout(**fields))


def ladder(last: int, most: int = 128) -> list[int]:
    """1, 2, 4, … up to `most`, with `last` among them."""
    steps = {2**k for k in range(most.bit_length()) if 2**k <= most}
    return sorted(steps | {last})


def zero_layout(stage: int, ranks: int, **more: Any) -> LayoutColumns:
    """`ranks` data-parallel ranks at ZeRO `stage`; stage 0 is DDP."""
    split = {"replicate": ranks} if stage == 0 else {"shard": ranks}
    return columns(zero_stage=stage, **split, **more)


def states_on_rank(given: Inputs, layout: LayoutColumns, learning: float = 1.0) -> tuple[float, float, float]:
    """Bytes of parameters, gradients and optimizer states on one rank."""
    held, learned = RankParameters(given.parameters, 0.0), RankParameters(given.parameters * learning, 0.0)
    parts = state_shares(held, learned, given.state_bytes, layout)
    return float(parts[0]), float(parts[1]), float(parts[2])


def data_flows(given: Inputs, layout: LayoutColumns, micro_batches: int = 1) -> list[Flow]:
    """The collectives of one step on the data axis that happen at all; the model counts as one layer and one bucket.

    The textbook's collectives start at once.
    """
    share = RankParameters(given.parameters, 0.0)
    software = replace(load_implementation(given.workload.implementation), bucket_bytes=float("inf"))
    device = given.cluster.device
    prompt = replace(device, efficiency=replace(device.efficiency, collective_overhead_s=0.0))
    nodes = replace(given.cluster, device=prompt)
    rows = []
    for flow in gather_flows(share, given.state_bytes, layout, nodes, 1.0):
        rows.append((flow, micro_batches * float(flow.count)))
    for flow in step_flows(share, given.state_bytes, layout, nodes, micro_batches, software):
        rows.append((flow, float(flow.count)))
    return [
        Flow(f.collective, f.when, count, float(f.size), float(f.sent), float(f.seconds))
        for f, count in rows
        if count > 0
    ]


def sent_bytes(flows: Iterable[Flow]) -> float:
    """Bytes that one rank sends in a step."""
    return float(sum(flow.count * flow.sent for flow in flows))


def flow_seconds(flows: Iterable[Flow]) -> float:
    """Seconds of the collectives one after the other, with nothing hidden."""
    return float(sum(flow.count * flow.seconds for flow in flows))


def data_tiers(given: Inputs, ranks: int) -> Tiers:
    """The links of `ranks` data-parallel ranks; the textbook's collectives start at once."""
    return replace(tiers(groups(columns(replicate=ranks))["data"], given.cluster), overhead=0.0)


def where(t: Tiers) -> str:
    """The bandwidth that a ring over these links reaches: inside a node, or of all of a node's NICs."""
    if float(t.nodes) == 1:
        return gb_per_s(float(t.intra))
    return f"{gb_per_s(min(float(t.intra), float(t.inter)))} between nodes"


def links_line(given: Inputs) -> str:
    """The bandwidth and latency behind a page's seconds, as far as collectives reach them."""
    c = given.cluster
    t = data_tiers(given, c.devices)
    near = f"{gb_per_s(float(t.intra))} and {duration(c.intra.latency_s)} a hop"
    if c.nodes == 1:
        return f"links: {near}"
    far = f"{gb_per_s(float(t.inter))} a node and {duration(c.inter.latency_s)} a hop between nodes"
    return f"links: {near} inside a node, {far}"


def check_schedule(given: Inputs) -> str:
    """What PyTorch alone refuses of the pipeline, as a line. Raises LayoutError for what no runtime takes."""
    p, m = given.stages, given.micro_batches
    if p == 1:
        return ""
    if given.schedule == "1f1b" and m < p:
        return f"PyTorch's 1f1b refuses {m} micro-batches on {p} ranks; Megatron and DeepSpeed run them"
    check(given.schedule, p, m, given.virtual_stages)
    return ""


def exchanges(given: Inputs, layout: LayoutColumns, axis: str) -> list[Exchange]:
    """One layer's collectives on one axis for one micro-batch, those that happen."""
    work, software = given.workload, load_implementation(given.workload.implementation)
    r = rates(given.cluster.device, work, software)
    found = layer_exchanges(given.model, work, layout, given.cluster, r, software)
    return [x for x in found if x.axis == axis and float(x.forward + x.backward) > 0]


def exchange_sent(found: Iterable[Exchange]) -> float:
    """Bytes that one device sends for them, forward and backward."""
    return float(sum((x.forward + x.backward) * x.sent for x in found))


def exchange_seconds(found: Iterable[Exchange]) -> float:
    """Their seconds, forward and backward, with nothing hidden."""
    return float(sum((x.forward + x.backward) * x.seconds for x in found))
