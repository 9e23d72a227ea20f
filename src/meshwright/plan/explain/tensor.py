"""Tensor and sequence parallelism: one layer's products and norms over ranks."""

from __future__ import annotations

from meshwright.cost.memory import layer_activations
from meshwright.cost.shares import layer_share
from meshwright.plan.explain.common import columns, exchange_seconds, exchange_sent, exchanges, ladder
from meshwright.plan.explain.inputs import Inputs
from meshwright.plan.explain.page import Page, account, table
from meshwright.spec.columns import LayoutColumns
from meshwright.spec.errors import RequestError
from meshwright.spec.units import binary, count, duration


def page(topic: str, given: Inputs) -> Page:
    """The account of tensor parallelism, or of the sequence parallelism that belongs to it."""
    degrees = [n for n in ladder(given.ranks, 16) if given.heads % n == 0]
    if given.heads % given.ranks:
        raise RequestError(
            f"{given.ranks} tensor ranks do not divide {given.heads} heads.", [str(n) for n in degrees if n > 1]
        )
    return _sequence(topic, given, degrees) if topic == "sp" else _tensor(topic, given, degrees)


def _layout(given: Inputs, ranks: int, sequence_parallel: bool) -> LayoutColumns:
    return columns(tensor=ranks, sequence_parallel=sequence_parallel, micro_batch=given.micro_batch)


def _tensor(topic: str, given: Inputs, degrees: list[int]) -> Page:
    t, b, s, h = given.ranks, given.micro_batch, given.seq_len, given.hidden
    found = exchanges(given, _layout(given, t, False), "tensor")
    size = float(found[0].size) if found else 0.0
    forward = float(sum(x.forward for x in found))
    backward = float(sum(x.backward for x in found))
    sent, seconds = exchange_sent(found), exchange_seconds(found)
    rows = []
    for n in degrees:
        layout = _layout(given, n, False)
        x = exchanges(given, layout, "tensor")
        weights = float(layer_share(given.model, layout).total)
        rows.append((f"{n}", count(weights), binary(exchange_sent(x)), duration(exchange_seconds(x) * given.layers)))
    held = float(layer_share(given.model, _layout(given, t, False)).total)
    return account(
        topic,
        "TP: tensor parallelism",
        what="Each matrix product is split over t ranks: the first of a pair by columns, the second by rows, so that "
        "one all-reduce a pair suffices. Attention is split by heads.",
        formula=(
            "two all-reduces a layer in forward and two in backward, each of batch x sequence x hidden x bytes",
            "sent by a rank for each: 2 (t-1)/t of it",
            "parameters and optimizer states of a layer / t (norms are kept whole)",
        ),
        steps=(
            f"one all-reduce: {b} x {s} x {h} x 2 bytes = {binary(size)}",
            f"{forward:g} in forward and {backward:g} in backward of a layer: a rank sends {binary(sent)}",
            f"{given.layers} layers: {duration(seconds * given.layers)} for a micro-batch, hardly any of it hidden",
            f"a rank holds {count(held)} parameters of a layer",
        ),
        shown=table((">ranks", ">parameters a layer", ">sent a layer", f">time, {given.layers} layers"), rows),
        sent="Activations, in the middle of forward and backward: compute waits for them.",
        saved="Parameters, gradients, optimizer states and the activations inside attention and feed-forward fall as "
        "1/t. With sequence parallelism the rest falls too (see sp).",
        use="Inside a node, over NVLink or the like, when a layer or its activations are too large for one device, or "
        "when the batch is too small for more data-parallel ranks.",
        avoid="Across nodes; with more ranks than key-value heads; so far that a rank's products become narrow.",
        sources=("Shoeybi et al. 2019, arXiv:1909.08053 section 3", "Narayanan et al. 2021, arXiv:2104.04473"),
        numbers={
            "ranks": t,
            "all_reduce_bytes": size,
            "all_reduces_forward": forward,
            "all_reduces_backward": backward,
            "sent_bytes_per_layer": sent,
            "seconds_per_micro_batch": seconds * given.layers,
            "parameters_per_layer": held,
        },
    )


def _sequence(topic: str, given: Inputs, degrees: list[int]) -> Page:
    t = given.ranks

    def kept(ranks: int, on: bool) -> float:
        return float(layer_activations(given.model, given.workload, _layout(given, ranks, on), 0))

    plain, split = kept(t, False), kept(t, True)
    before = exchange_sent(exchanges(given, _layout(given, t, False), "tensor"))
    after = exchange_sent(exchanges(given, _layout(given, t, True), "tensor"))
    rows = [(f"{n}", binary(kept(n, False)), binary(kept(n, True))) for n in degrees]
    return account(
        topic,
        "SP: sequence parallelism beside tensor parallelism",
        what="Norms, dropouts and residuals, which tensor parallelism repeats on each of its t ranks, are split "
        "along the sequence over the same ranks.",
        formula=(
            "each all-reduce becomes an all-gather before the product and a reduce-scatter after it: the same bytes",
            "unfused attention, dropout: s b h (10 + 24/t + 5 a s/(h t)) without SP, s b h (34 + 5 a s/h) / t with it",
        ),
        steps=(
            f"a layer keeps {binary(plain)} on a rank without SP and {binary(split)} with it, t = {t}",
            f"{given.layers} layers: {binary((plain - split) * given.layers)} less for each micro-batch in flight",
            f"sent by a rank in a layer: {binary(before)} without and {binary(after)} with SP",
        ),
        shown=table((">ranks", ">a layer, no SP", ">a layer, SP"), rows),
        sent="What tensor parallelism sends, cut in two.",
        saved="The activations outside the products, which do not shrink with t otherwise.",
        use="Always with tensor parallelism.",
        avoid="The sequence is no multiple of t. (For long sequences by themselves see cp.)",
        sources=("Korthikanti et al. 2022, arXiv:2205.05198 section 4.2",),
        numbers={
            "ranks": t,
            "activation_bytes_per_layer": {"without": plain, "with": split},
            "sent_bytes_per_layer": {"without": before, "with": after},
        },
    )
