"""`meshwright clusters`: the devices and links of the catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from meshwright.cli.options import JsonOption, complete_device, nearest_names, nothing_matches
from meshwright.cli.screen import console, print_json
from meshwright.cli.tables import table, titled

if TYPE_CHECKING:
    from meshwright.spec.cluster import Link
    from meshwright.spec.cluster_catalog import Preset

EXAMPLES = ("meshwright clusters", "meshwright clusters H100", "meshwright clusters --json")
DEVICES = ("device", ">GiB", ">GB/s", ">16 bit TFLOP/s", ">8 bit", ">a node", "inside, GB/s", "between, GB/s a NIC")
NARROW = ("8 bit", "a node", "between, GB/s a NIC", "inside, GB/s")
"""Columns that narrow screens do without, the first one first."""
LINKS = ("link", "is", ">GB/s", ">latency µs")


def answer(
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="Only devices with this name.", autocompletion=complete_device)
    ] = "",
    as_json: JsonOption = False,
) -> int:
    """List the devices, nodes and links that a cluster can be named by.

    A cluster is COUNTxDEVICE (8xA100-40GB), NODESxPER_NODExDEVICE (4x8xH100) or a TOML file. Bandwidths are per device
    or NIC and direction. Exit code 2: no device's name has TEXT.
    """
    from meshwright.spec.cluster_catalog import links, presets
    from meshwright.spec.errors import ClusterError

    known, wires = presets(), links()
    chosen = {name: preset for name, preset in known.items() if text.lower() in name.lower()}
    if not chosen:
        raise ClusterError(nothing_matches(text, "device's name", "clusters"), nearest_names(text, known))
    devices = [_device(name, preset) for name, preset in chosen.items()]
    wanted = {preset.intra for preset in chosen.values()} | {preset.host.nic for preset in chosen.values()}
    shown = [_link(name, link) for name, link in wires.items() if not text or name in wanted]
    if as_json:
        print_json({"clusters": devices, "links": shown})
    else:
        screen = console()
        screen.print(table(DEVICES, [_device_cells(device) for device in devices], drop=NARROW))
        screen.print(titled("Links (--intra-node, --inter-node)", table(LINKS, [_link_cells(link) for link in shown])))
    return 0


def _device(name: str, preset: Preset) -> dict[str, Any]:
    from meshwright.spec.cluster_catalog import links

    intra, inter = links()[preset.intra], links()[preset.host.nic]
    return {
        "name": name,
        "title": preset.title,
        "memory_bytes": preset.device.memory_bytes,
        "memory_bytes_per_second": preset.device.memory_bytes_per_s,
        "peak_flops": preset.device.peak_flops,
        "devices_per_node": preset.devices_per_node,
        "intra_node": preset.intra,
        "intra_node_bytes_per_second": intra.bytes_per_s,
        "inter_node": preset.host.nic,
        "nic_bytes_per_second": inter.bytes_per_s,
        "nics_per_node": preset.host.nics,
        "source": preset.device.source,
    }


def _link(name: str, link: Link) -> dict[str, Any]:
    return {
        "name": name,
        "title": link.name,
        "bytes_per_second": link.bytes_per_s,
        "latency_seconds": link.latency_s,
        "source": link.source,
    }


def _device_cells(device: dict[str, Any]) -> list[str]:
    """One device as text: memory in GiB, bandwidths in GB/s, peaks in TFLOP/s."""
    peak = device["peak_flops"]
    inside, nic = (device[f"{link}_bytes_per_second"] / 1e9 for link in ("intra_node", "nic"))
    return [
        device["name"],
        f"{device['memory_bytes'] / 2**30:.1f}",
        f"{device['memory_bytes_per_second'] / 1e9:,.0f}",
        _tflops(max(peak.get("bf16", 0), peak.get("fp16", 0))),
        _tflops(peak["fp8"]) if "fp8" in peak else "",
        f"{device['devices_per_node']}",
        f"{device['intra_node']} {inside:g}",
        f"{device['nics_per_node']:g}×{device['inter_node']} {nic:g}",
    ]


def _tflops(flops: float) -> str:
    return f"{flops / 1e12:,.0f}" if flops >= 1e13 else f"{flops / 1e12:.2g}"


def _link_cells(link: dict[str, Any]) -> list[str]:
    return [
        link["name"],
        link["title"],
        f"{link['bytes_per_second'] / 1e9:g}",
        f"{link['latency_seconds'] * 1e6:g}",
    ]
