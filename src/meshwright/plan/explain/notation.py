"""The layout notation."""

from __future__ import annotations

from meshwright.plan.explain.inputs import Inputs
from meshwright.plan.explain.page import Page, Section, table
from meshwright.spec.layout import Layout
from meshwright.spec.notation import format_layout, parse_layout

EXAMPLE = "fsdp8 tp4 pp2:1f1b mbs2 ac:selective"
MEANINGS = (
    ("ddp8", "8 replicas, nothing sharded"),
    ("zero1:8 zero2:8 zero3:8", "8 ranks share optimizer states, + gradients, + parameters"),
    ("fsdp8", "the same as zero3:8"),
    ("hsdp2x4", "2 replicas of a group of 4 that shares everything"),
    ("tp4 tp4:nosp", "4 tensor ranks; sequence parallel unless nosp"),
    ("cp2 cp2:ulysses cp2:allgather", "2 context ranks; ring unless said"),
    ("ep8", "8 expert ranks, taken from the data, context and tensor ranks"),
    ("pp4:1f1b pp4:interleaved1f1b:2", "4 pipeline ranks, schedule, stages a rank"),
    ("stages:3-4-4-3", "layers of each stage by hand"),
    ("mbs2", "2 sequences a micro-batch"),
    ("ac:selective ac:full", "recomputation"),
    ("offload:optimizer offload:optimizer+parameters", "states in the host's memory"),
    ("quant:weights+gradients hpz8", "ZeRO++"),
    ("ps8x2 ps8x2:stale4 ps8x2:async", "8 workers and 2 parameter servers; at most 4 steps apart; never waiting"),
)


def page(topic: str, given: Inputs) -> Page:
    """The tokens, and one layout taken apart."""
    layout = given.layout or parse_layout(EXAMPLE)
    degrees = _degrees(layout)
    split = " x ".join(f"{name} {degree}" for name, degree in degrees.items() if name != "expert")
    return Page(
        topic,
        "The layout notation",
        (
            Section(
                "What",
                (
                    "Tokens in any order and case, separated by spaces. `meshwright estimate` compares several "
                    "layouts: commas separate them, braces list alternatives, as in pp4:{gpipe,1f1b}.",
                ),
                table(("token", "means"), MEANINGS),
            ),
            Section(
                "With your layout",
                (
                    format_layout(layout),
                    f"{split} = {layout.devices} devices",
                    f"micro-batch {layout.micro_batch}, recomputation {layout.recompute}, ZeRO stage "
                    f"{layout.zero_stage}",
                    "ranks in order: tensor next to each other, then context, shard, replicate, pipeline",
                ),
            ),
        ),
        ("meshwright: spec.notation",),
        {"layout": format_layout(layout), "devices": layout.devices, "degrees": degrees},
    )


def _degrees(layout: Layout) -> dict[str, int]:
    names = ("replicate", "shard", "context", "tensor", "expert", "pipeline")
    return {name: getattr(layout, name) for name in names}
