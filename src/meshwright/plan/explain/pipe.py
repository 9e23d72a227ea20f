"""Pipeline parallelism, stage by stage."""

from __future__ import annotations

from meshwright.cost.collectives import groups, send_seconds
from meshwright.cost.memory import layer_activations
from meshwright.cost.operations import sizes
from meshwright.cost.pipeline import bubble_fraction, in_flight
from meshwright.cost.rank_layers import balanced_layers
from meshwright.cost.shares import edge_share, layer_share
from meshwright.plan.explain.common import check_schedule, columns
from meshwright.plan.explain.inputs import Inputs
from meshwright.plan.explain.page import Page, account, table
from meshwright.spec.errors import RequestError
from meshwright.spec.layout import SCHEDULES
from meshwright.spec.units import binary, count, duration, percent


def page(topic: str, given: Inputs) -> Page:
    """The account of pipeline parallelism."""
    p, m, v = given.stages, given.micro_batches, given.virtual_stages
    if p * v > given.layers:
        raise RequestError(f"{given.layers} layers do not fill {p} x {v} stages.", (f"--stages {given.layers // v}",))
    refusal = check_schedule(given)
    code = SCHEDULES.index(given.schedule)
    layout = columns(pipeline=p, schedule=given.schedule, virtual_stages=v, micro_batch=given.micro_batch)
    split = balanced_layers(given.model, layout)
    layers = [split.first, *[split.middle] * max(p - 2, 0), split.last][:p]
    share = float(layer_share(given.model, layout).total)
    edges = [float(x) for x in edge_share(given.model, layout)]
    kept = float(layer_activations(given.model, given.workload, layout, 0))
    z = sizes(given.workload, layout)
    size = float(z.element * z.tokens * given.hidden)
    send = float(send_seconds(size, groups(layout)["pipeline"], given.cluster))
    bubble = float(bubble_fraction(code, p, m, v))
    rows, flying = [], []
    for rank in range(p):
        flying.append(float(in_flight(code, p, m, v, rank)))
        outside = edges[0] * (rank == 0) + edges[1] * (rank == p - 1)
        held = float(layers[rank]) * share + outside
        activations = flying[rank] * float(layers[rank]) * kept
        rows.append((f"{rank}", f"{float(layers[rank]):g}", count(held), f"{flying[rank]:g}", binary(activations)))
    return account(
        topic,
        "PP: pipeline parallelism",
        what="The layers are cut into stages on p ranks. A batch goes through in m micro-batches, so that ranks work "
        "at the same time on different ones.",
        formula=(
            "bubble of 1F1B and GPipe = (p-1) / (m+p-1); interleaved with v stages a rank: (p-1) / (v m+p-1)",
            "micro-batches held by rank r under 1F1B: p-r; under GPipe: m",
            "sent to the next rank: micro-batch x sequence x hidden x bytes, and as much back",
        ),
        steps=(
            f"p = {p} ranks, {given.schedule}, m = {m} micro-batches, v = {v}: bubble {percent(bubble)}",
            f"one send: {binary(size)} in {duration(send)}; {2 * m * v} of them a step between two ranks",
            f"a layer keeps {binary(kept)} of activations for each micro-batch in flight",
            *([refusal] if refusal else []),
        ),
        shown=table((">rank", ">layers", ">parameters", ">in flight", ">activations"), rows),
        sent="One activation and one gradient for each micro-batch and stage border: the least of all axes.",
        saved="Parameters and states fall as 1/p. Activations do not: the first rank holds p micro-batches of 1/p of "
        "the layers. Embedding and head make the first and last rank fuller.",
        use="Across nodes, when tensor parallelism has filled the node and the model still does not fit; with m well "
        "above p.",
        avoid="Few micro-batches, or a model whose states FSDP can shard and hide.",
        sources=("Huang et al. 2018, arXiv:1811.06965", "Narayanan et al. 2021, arXiv:2104.04473 section 2.2"),
        numbers={
            "stages": p,
            "micro_batches": m,
            "bubble": bubble,
            "send_bytes": size,
            "send_seconds": send,
            "layers": [float(x) for x in layers],
            "in_flight": flying,
        },
    )
