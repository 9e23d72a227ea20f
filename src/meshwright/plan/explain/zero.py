"""ZeRO: what the stages share, keep and send."""

from __future__ import annotations

from meshwright.plan.explain.common import (
    data_flows,
    flow_seconds,
    ladder,
    sent_bytes,
    states_on_rank,
    zero_layout,
)
from meshwright.plan.explain.inputs import Inputs
from meshwright.plan.explain.page import Page, account, table
from meshwright.spec.units import binary, count, duration, gib

NAMES = ("DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3")


def page(topic: str, given: Inputs) -> Page:
    """The account of ZeRO's three stages."""
    s, d = given.state_bytes, given.ranks
    weights = s.parameter
    optimizer = s.master + s.moments + s.main_gradient
    parts = [states_on_rank(given, zero_layout(stage, d)) for stage in range(4)]
    totals = [sum(part) for part in parts]
    flows = [data_flows(given, zero_layout(stage, d)) for stage in range(4)]
    sent = [sent_bytes(flow) for flow in flows]
    seconds = [flow_seconds(flow) for flow in flows]
    rows = [
        (NAMES[k], *(gib(x) for x in parts[k]), gib(totals[k]), binary(sent[k]), duration(seconds[k])) for k in range(4)
    ]
    by_ranks = "; ".join(
        f"d = {n}: {gib(sum(states_on_rank(given, zero_layout(3, n))))}" for n in ladder(d, 64) if n > 1
    )
    return account(
        topic,
        "ZeRO: data-parallel ranks share what DDP keeps d times",
        what="Stage 1 splits the optimizer states over d ranks, stage 2 the gradients too, stage 3 the parameters too. "
        "Each rank updates its part.",
        formula=(
            f"DDP:    N x ({weights:g} + {s.gradient:g} + {optimizer:g})",
            f"ZeRO-1: N x ({weights:g} + {s.gradient:g} + {optimizer:g}/d)",
            f"ZeRO-2: N x ({weights:g} + ({s.gradient:g} + {optimizer:g})/d)",
            f"ZeRO-3: N x ({weights:g} + {s.gradient:g} + {optimizer:g})/d",
        ),
        steps=(
            f"N = {count(given.parameters)} parameters, {s.total:g} bytes of states each, d = {d} ranks",
            *(f"{NAMES[k]}: {gib(totals[k])} a rank" for k in range(4)),
            f"ZeRO-3 by ranks: {by_ranks}",
        ),
        shown=table(
            ("", ">parameters", ">gradients", ">optimizer", ">all", ">sent a step", ">time, none hidden"), rows
        ),
        sent="Stages 1 and 2: a reduce-scatter of gradients and an all-gather of parameters, together DDP's bytes. "
        "Stage 3: two gathers of the parameters and a reduce-scatter of the gradients for every micro-batch, 1.5 "
        "times DDP's bytes for one. Stage 2 reduces in every micro-batch, outside of pipelines.",
        saved=f"Of {gib(totals[0])}, stage 1 saves {gib(totals[0] - totals[1])}, stage 2 {gib(totals[0] - totals[2])}, "
        f"stage 3 {gib(totals[0] - totals[3])} a rank. Activations stay as they are.",
        use="Stage 1 nearly always: it costs nothing. Stage 3 when the states do not fit otherwise and the network can "
        "gather a layer while the one before computes.",
        avoid="Stage 2 in a pipeline: PyTorch keeps gradients whole until the last micro-batch, so that it saves "
        "nothing over stage 1. Stage 3 in a pipeline, for a small model, or with small micro-batches over a slow "
        "network: it gathers the parameters for each.",
        sources=("Rajbhandari et al. 2020, arXiv:1910.02054 sections 3.1, 5 and 7",),
        numbers={
            "parameters": given.parameters,
            "ranks": d,
            "bytes_per_parameter": s.total,
            "state_bytes_per_rank": {NAMES[k]: totals[k] for k in range(4)},
            "sent_bytes_per_step": {NAMES[k]: sent[k] for k in range(4)},
            "seconds": {NAMES[k]: seconds[k] for k in range(4)},
        },
    )
