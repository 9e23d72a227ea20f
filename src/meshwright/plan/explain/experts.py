"""Expert parallelism: experts on ranks, tokens on their way to them."""

from __future__ import annotations

from meshwright.cost.shares import layer_share
from meshwright.plan.explain.common import columns, exchange_seconds, exchange_sent, exchanges, ladder
from meshwright.plan.explain.inputs import Inputs
from meshwright.plan.explain.page import Page, account, table
from meshwright.spec.columns import LayoutColumns
from meshwright.spec.errors import RequestError
from meshwright.spec.units import binary, count, duration


def _layout(given: Inputs, ranks: int) -> LayoutColumns:
    return columns(replicate=ranks, expert=ranks, micro_batch=given.micro_batch)


def page(topic: str, given: Inputs) -> Page:
    """The account of expert parallelism with balanced routing."""
    e = given.ranks
    degrees = [n for n in ladder(e, 64) if given.experts % n == 0]
    if given.experts % e:
        raise RequestError(f"{e} ranks do not divide {given.experts} experts.", [str(n) for n in degrees])
    model, layers = given.model, given.model.moe_layers
    share = layers / model.layers
    found = exchanges(given, _layout(given, e), "expert")
    size = float(found[0].size) if found else 0.0
    sent, seconds = exchange_sent(found) / share, exchange_seconds(found) / share
    held = float(layer_share(model, _layout(given, e)).expert) / share
    rows = []
    for n in degrees:
        x = exchanges(given, _layout(given, n), "expert")
        weights = float(layer_share(model, _layout(given, n)).expert) / share
        time = exchange_seconds(x) / share
        rows.append((f"{n}", f"{given.experts // n}", count(weights), binary(exchange_sent(x) / share), duration(time)))
    return account(
        topic,
        "EP: expert parallelism",
        what=f"Each of e ranks holds {given.experts}/e experts of every mixture layer. A token's activation goes to "
        f"the ranks of its {given.per_token} experts and the results come back. The ranks are data, context or "
        "tensor ranks.",
        formula=(
            "two all-to-alls a layer in forward, two in backward",
            "each: tokens x experts per token x hidden x bytes, of which (e-1)/e leave the rank",
            "expert parameters of a rank / e; their gradients are averaged over the other data ranks only",
        ),
        steps=(
            f"{given.micro_batch} x {given.seq_len} tokens x {given.per_token} experts x {given.hidden} x 2 bytes = "
            f"{binary(size)} an all-to-all",
            f"four of them a mixture layer: a rank sends {binary(sent)} in {duration(seconds)}",
            f"{layers} mixture layers: {duration(seconds * layers)} for a micro-batch",
            f"a rank holds {count(held)} expert parameters of a layer",
        ),
        shown=table(
            (">ranks", ">experts a rank", ">expert parameters a layer", ">sent a layer", ">time a layer"), rows
        ),
        sent="Activations of tokens, on the critical path. Routing is taken as balanced; the fullest expert decides.",
        saved="Expert parameters and their states fall as 1/e. Attention and shared experts do not.",
        use="Mixtures of many experts: within a node first, then across nodes with a fast network.",
        avoid="Few experts that fit every rank: sharding them costs less than moving tokens.",
        sources=("Lepikhin et al. 2020, arXiv:2006.16668", "Fedus et al. 2021, arXiv:2101.03961"),
        numbers={
            "ranks": e,
            "all_to_all_bytes": size,
            "sent_bytes_per_layer": sent,
            "seconds_per_layer": seconds,
            "expert_parameters_per_layer": held,
        },
    )
