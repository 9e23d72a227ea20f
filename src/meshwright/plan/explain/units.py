"""Units: powers of two and of ten."""

from __future__ import annotations

from meshwright.plan.explain.inputs import Inputs
from meshwright.plan.explain.page import Page, Section, table
from meshwright.spec.units import GIB, TIB, binary, count

CARDS = (("16 GB", 16e9), ("24 GB", 24e9), ("32 GB", 32e9), ("40 GB", 40e9), ("80 GB", 80e9), ("141 GB", 141e9))


def page(topic: str, given: Inputs) -> Page:
    """GiB and GB, bits and bytes, bytes a parameter."""
    size, per = given.size, given.state_bytes.total
    states = given.parameters * per
    rows = [(name, f"{bytes_ / GIB:.1f} GiB") for name, bytes_ in CARDS]
    return Page(
        topic,
        "Units",
        (
            Section(
                "What",
                (
                    "1 GB = 10^9 bytes. 1 GiB = 2^30 bytes = 1.074 GB. Memory is shown in GiB here, as PyTorch does.",
                    "1 GB/s = 8 Gbps: networks are sold in bits, links in bytes, often both directions added up.",
                    "A device's memory is named in GB by some vendors and means GiB for others; the catalogue holds "
                    "what a process can allocate.",
                ),
            ),
            Section(
                "With your numbers",
                (
                    f"{size:,.0f} bytes = {size / 1e9:.4g} GB = {size / GIB:.4g} GiB",
                    f"{given.bandwidth / 1e9:g} GB/s = {given.bandwidth * 8 / 1e9:g} Gbps = "
                    f"{given.bandwidth / GIB:.4g} GiB/s",
                    f"{count(given.parameters)} parameters x {per:g} bytes = {states / 1e9:.4g} GB = {binary(states)}",
                ),
                table(("sold as", ">in GiB, if GB is meant"), rows),
            ),
        ),
        ("IEC 80000-13",),
        {
            "size_bytes": size,
            "size_gb": size / 1e9,
            "size_gib": size / GIB,
            "bandwidth_gbps": given.bandwidth * 8 / 1e9,
            "state_bytes": states,
            "state_tib": states / TIB,
        },
    )
