"""`meshwright clusters`: the devices and links of the catalogue."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from meshwright.cli.options import JsonOption, complete_device
from meshwright.cli.screen import console, print_json
from meshwright.cli.tables import table

EXAMPLES = ("meshwright clusters", "meshwright clusters H100", "meshwright clusters --json")


def answer(
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="Only devices with this name.", autocompletion=complete_device)
    ] = "",
    as_json: JsonOption = False,
) -> int:
    """List the devices, nodes and links that a cluster can be named by.

    A cluster is COUNTxDEVICE (8xA100-40GB), NODESxPER_NODExDEVICE (4x8xH100) or a TOML file.
    """
    from meshwright.spec.cluster_catalog import links, near, presets
    from meshwright.spec.errors import ClusterError

    known, wires = presets(), links()
    chosen = {name: preset for name, preset in known.items() if text.lower() in name.lower()}
    if not chosen:
        raise ClusterError(f"No device's name contains {text!r}.", near(text, known))
    rows = [
        {
            "name": name,
            "title": preset.title,
            "memory_bytes": preset.device.memory_bytes,
            "memory_bytes_per_second": preset.device.memory_bytes_per_s,
            "peak_flops": preset.device.peak_flops,
            "devices_per_node": preset.devices_per_node,
            "intra_node": wires[preset.intra].name,
            "intra_node_bytes_per_second": wires[preset.intra].bytes_per_s,
            "inter_node": wires[preset.host.nic].name,
            "nic_bytes_per_second": wires[preset.host.nic].bytes_per_s,
            "nics_per_node": preset.host.nics,
            "source": preset.device.source,
        }
        for name, preset in chosen.items()
    ]
    if as_json:
        print_json({"clusters": rows})
        return 0
    columns = (
        "device",
        ">GiB",
        ">GB/s",
        ">bf16 TFLOP/s",
        ">fp8",
        ">a node",
        "inside",
        ">GB/s",
        "between",
        ">NICs",
        ">GB/s",
    )
    console().print(table(columns, [_cells(row) for row in rows]))
    return 0


def _cells(row: dict[str, Any]) -> list[str]:
    """One device as text: memory in GiB, bandwidths in GB/s, peaks in TFLOP/s."""
    tflops = {name: f"{flops / 1e12:,.0f}" for name, flops in row["peak_flops"].items()}
    return [
        row["name"],
        f"{row['memory_bytes'] / 2**30:.1f}",
        f"{row['memory_bytes_per_second'] / 1e9:,.0f}",
        tflops.get("bf16", "–"),
        tflops.get("fp8", "–"),
        f"{row['devices_per_node']}",
        row["intra_node"],
        f"{row['intra_node_bytes_per_second'] / 1e9:,.0f}",
        row["inter_node"],
        f"{row['nics_per_node']:g}",
        f"{row['nic_bytes_per_second'] / 1e9:,.1f}",
    ]
