"""Recomputation: memory for FLOPs."""

from __future__ import annotations

from dataclasses import replace

from meshwright.cost.flops import model_flops, recomputed_flops
from meshwright.cost.memory import layer_activations
from meshwright.plan.explain.common import columns
from meshwright.plan.explain.inputs import Inputs
from meshwright.plan.explain.page import Page, account, table
from meshwright.spec.errors import RequestError
from meshwright.spec.layout import RECOMPUTE, Layout
from meshwright.spec.units import binary, percent


def page(topic: str, given: Inputs) -> Page:
    """The account of selective and full recomputation, with fused and unfused attention."""
    t = given.tensor
    if given.heads % t:
        raise RequestError(f"{t} tensor ranks do not divide {given.heads} heads.", ("1", "2", "4", "8"))
    layout = columns(tensor=t, micro_batch=given.micro_batch)
    kept: dict[str, dict[str, float]] = {}
    again: dict[str, dict[str, float]] = {}
    for label, fused in (("fused attention", True), ("attention through memory", False)):
        work = replace(given.workload, fused_attention=fused)
        whole = model_flops(given.model, work)
        kept[label] = {
            kind: float(layer_activations(given.model, work, layout, code)) for code, kind in enumerate(RECOMPUTE)
        }
        again[label] = {kind: recomputed_flops(given.model, work, Layout(recompute=kind)) / whole for kind in RECOMPUTE}
    rows = [
        (kind, *(text for label in kept for text in (binary(kept[label][kind]), percent(again[label][kind]))))
        for kind in RECOMPUTE
    ]
    flash = kept["fused attention"]
    shown = table(("", ">fused: a layer keeps", ">more FLOPs", ">unfused: a layer keeps", ">more FLOPs"), rows)
    return account(
        topic,
        "Recomputation (activation checkpointing)",
        what="Forward keeps only some activations; backward computes the others again. Full keeps each layer's input. "
        "Selective drops what is large for its cost: the attention scores, or with fused attention the outputs of "
        "norms and activations.",
        formula=(
            "a layer with unfused attention, 16 bit, dropout: s b h (34 + 5 a s / h) / t with sequence parallelism",
            "selective: 34 s b h / t      full: 2 s b h / t",
            "full adds a third of the FLOPs of forward and backward",
        ),
        steps=(
            f"s = {given.seq_len}, b = {given.micro_batch}, h = {given.hidden}, a = {given.heads}, t = {t}, no dropout",
            f"{given.layers} layers with fused attention: {binary(flash['none'] * given.layers)} kept, "
            f"{binary(flash['selective'] * given.layers)} selective, {binary(flash['full'] * given.layers)} full",
        ),
        shown=shown,
        sent="Full recomputation repeats the collectives of tensor, context and expert parallelism in forward.",
        saved=f"Full saves {percent(1 - flash['full'] / flash['none'])} of a layer's activations; one layer's are "
        "whole while its backward runs.",
        use="Activations do not fit, or a larger micro-batch would pay. Selective first; full for long sequences and "
        "pipelines with many micro-batches in flight.",
        avoid="It fits without: full costs up to a third of the step.",
        sources=("Korthikanti et al. 2022, arXiv:2205.05198 equations 1 to 6", "Chen et al. 2016, arXiv:1604.06174"),
        numbers={"activation_bytes_per_layer": kept, "extra_flops": again, "layers": given.layers, "tensor": t},
    )
