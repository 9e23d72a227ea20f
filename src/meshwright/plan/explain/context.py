"""Context parallelism: the sequence over ranks, in three ways."""

from __future__ import annotations

from meshwright.cost.memory import layer_activations
from meshwright.plan.explain.common import columns, exchange_seconds, exchange_sent, exchanges, ladder
from meshwright.plan.explain.inputs import Inputs
from meshwright.plan.explain.page import Page, account, table
from meshwright.spec.columns import LayoutColumns
from meshwright.spec.errors import RequestError
from meshwright.spec.layout import CONTEXT_KINDS
from meshwright.spec.units import binary, duration


def _layout(given: Inputs, ranks: int, kind: str) -> LayoutColumns:
    return columns(context=ranks, context_kind=kind, micro_batch=given.micro_batch)


def page(topic: str, given: Inputs) -> Page:
    """The account of context parallelism: ring, all-gather and Ulysses."""
    c = given.ranks
    degrees = [n for n in ladder(c, 16) if given.seq_len % (2 * n) == 0]
    if given.seq_len % (2 * c) and c > 1:
        raise RequestError(f"{given.seq_len} tokens do not split into 2 x {c} parts.", [str(n) for n in degrees])
    sent, seconds = {}, {}
    for kind in CONTEXT_KINDS:
        found = exchanges(given, _layout(given, c, kind), "context")
        sent[kind], seconds[kind] = exchange_sent(found), exchange_seconds(found)
    ring = exchanges(given, _layout(given, c, "ring"), "context")
    block = float(ring[0].size) if ring else 0.0
    hidden = float(ring[0].hidden_behind) if ring else 0.0
    each = float(ring[0].seconds) if ring else 0.0
    kept = [float(layer_activations(given.model, given.workload, _layout(given, n, "ring"), 0)) for n in (1, c)]
    rows = []
    for n in degrees:
        by_kind = [exchange_sent(exchanges(given, _layout(given, n, kind), "context")) for kind in CONTEXT_KINDS]
        whole = float(layer_activations(given.model, given.workload, _layout(given, n, "ring"), 0))
        rows.append((f"{n}", binary(whole), *(binary(x) for x in by_kind)))
    return account(
        topic,
        "CP: context parallelism",
        what="Every rank holds a part of each sequence in all layers. Only attention looks beyond its part: keys and "
        "values go round a ring, are gathered, or heads are traded for sequence (Ulysses).",
        formula=(
            "ring: c-1 steps in forward, each sends a rank's keys and values: 2 x tokens/c x key-value width x bytes",
            "all-gather: the same bytes at once; backward also reduces their gradients",
            "Ulysses: all-to-all of queries, keys, values and outputs: (c-1)/c of a rank's own, which falls with c",
        ),
        steps=(
            f"{given.seq_len} tokens over c = {c} ranks: {given.seq_len // c} each",
            f"a rank's keys and values: {binary(block)}; sending them takes {duration(each)}, the attention that hides "
            f"it {duration(hidden)}",
            f"a layer keeps {binary(kept[0])} on one rank and {binary(kept[1])} on each of {c}",
            f"one layer, forward and backward, nothing hidden: {duration(seconds['ring'])} by ring, "
            f"{duration(seconds['allgather'])} by all-gather, {duration(seconds['ulysses'])} by Ulysses",
        ),
        shown=table((">ranks", ">a layer keeps", ">sent, ring", ">sent, all-gather", ">sent, Ulysses"), rows),
        sent="Keys and values (few bytes with grouped queries); the ring's sends run beside attention, which grows "
        "with the square of the sequence.",
        saved="Activations and logits fall as 1/c. Parameters and states stay: c counts as data-parallel ranks for "
        "FSDP.",
        use="Long sequences whose activations do not fit, after tensor parallelism has filled the node. A causal mask "
        "needs each rank to take one early and one late part, or the last rank does most of the work.",
        avoid="Short sequences: more data-parallel ranks cost less. Ulysses beyond the number of heads.",
        sources=("Liu et al. 2023, arXiv:2310.01889 (ring)", "Jacobs et al. 2023, arXiv:2309.14509 (Ulysses)"),
        numbers={
            "ranks": c,
            "block_bytes": block,
            "sent_bytes_per_layer": sent,
            "seconds_per_layer": seconds,
            "activation_bytes_per_layer": {"one rank": kept[0], "each rank": kept[1]},
        },
    )
