"""The catalogue's tables as nouns: devices with their hosts, links, and the names they go by."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from meshwright.catalog.cluster_files import Table, device_tables, efficiency_tables, link_tables
from meshwright.spec.cluster import Device, Efficiency, Link
from meshwright.spec.errors import ClusterError

GIB = 2.0**30
_NOISE = re.compile(r"\b(nvidia|tesla|amd|instinct|geforce|graphics|hbm2e|hbm3e|hbm3|oam|accelerator)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Host:
    """The box that devices sit in."""

    name: str
    devices: int
    """Devices that share one box's memory, NICs and drives."""
    memory_bytes: float
    nics: float
    nic: str
    """Name of the NIC's link."""
    link: str
    """Name of the link from a device to the host's memory."""
    nvme_bytes_per_s: float
    source: str


@dataclass(frozen=True, slots=True)
class Preset:
    """One device of the catalogue and what usually surrounds it."""

    device: Device
    title: str
    devices_per_node: int
    """Devices joined by the `intra` link: a box, a rack or a pod."""
    intra: str
    """Name of the link inside a node."""
    host: Host
    note: str = ""
    """What everyone who uses the device should know."""


def tokens(name: str) -> tuple[str, ...]:
    """A name's words, lower case and in alphabetical order, so that `A100_SXM-80GB` is `a100-80gb-sxm`."""
    return tuple(sorted(re.findall(r"[a-z0-9.+]+", name.lower())))


def near(name: str, known: Iterable[str], count: int = 4) -> list[str]:
    """The known names that look most like `name`, best first; never empty unless `known` is."""
    by_lower = {k.lower(): k for k in known}
    found = difflib.get_close_matches(name.lower()[:80], by_lower, n=count, cutoff=0.5)
    return [by_lower[f] for f in found] or sorted(by_lower.values())


@cache
def presets() -> Mapping[str, Preset]:
    """Every device of the catalogue by its name, in the catalogue's order."""
    tables = device_tables()
    hosts = {name: _host(name, table) for name, table in tables["hosts"].items()}
    efficiency = efficiencies(efficiency_tables(), tables["devices"])
    return {
        name: _preset(name, table, hosts[table["host"]], efficiency[name]) for name, table in tables["devices"].items()
    }


def _host(name: str, table: Table) -> Host:
    return Host(
        name=name,
        devices=table["devices"],
        memory_bytes=table["memory_gib"] * GIB,
        nics=table["nics"],
        nic=table["nic"],
        link=table["host_link"],
        nvme_bytes_per_s=table["nvme_gb_per_s"] * 1e9,
        source=table["source"],
    )


def _preset(name: str, table: Table, host: Host, efficiency: Efficiency) -> Preset:
    device = Device(
        name=name,
        memory_bytes=table["memory_gib"] * GIB,
        memory_bytes_per_s=table["memory_gb_per_s"] * 1e9,
        peak_flops={precision: tflops * 1e12 for precision, tflops in table["peak_tflops"].items()},
        efficiency=efficiency,
        source=table["source"],
    )
    per_node = table.get("devices_per_node", host.devices)
    return Preset(device, table["title"], per_node, table["intra"], host, table.get("note", ""))


def efficiencies(tables: Table, devices: Iterable[str]) -> dict[str, Efficiency]:
    """Each device's constants: its own table, over that of the device it is `like`, over `default`, over the defaults.

    Raises ClusterError for a table that names no device, for an unknown constant and for one that is no number.
    """
    names = list(devices)
    own: dict[str, dict[str, Any]] = {}
    for name, table in tables.items():
        if name != "default" and name not in names:
            raise ClusterError(f"efficiency.toml: no device is called {name!r}.", near(name, ["default", *names]))
        like = table.get("like", "default")
        if like != "default" and like not in names:
            raise ClusterError(f"efficiency.toml, [{name}]: like = {like!r} is no device.", near(str(like), names))
        own[name] = {key: value for key, value in table.items() if key != "like"}
        _check_constants(name, own[name])
    shared = own.get("default", {})

    def constants(name: str) -> dict[str, Any]:
        like = tables.get(name, {}).get("like", "default")
        return {**shared, **own.get(like, {}), **own.get(name, {})}

    return {name: Efficiency(**constants(name)) for name in names}


def _check_constants(name: str, table: Table) -> None:
    legal = [f.name for f in fields(Efficiency)]
    for key, value in table.items():
        if key not in legal:
            raise ClusterError(f"efficiency.toml: [{name}] has the unknown key {key!r}.", near(key, legal))
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ClusterError(f"efficiency.toml: [{name}] {key} must be a number, not {value!r}.")


@cache
def links() -> Mapping[str, Link]:
    """Every link of the catalogue by its preset's name."""
    return {
        name: Link(
            table["title"],
            table["gb_per_s"] * 1e9,
            table["latency_us"] * 1e-6,
            table["source"],
            table.get("congestion", 0.0),
        )
        for name, table in link_tables()["links"].items()
    }


@cache
def _names() -> Mapping[tuple[str, ...], str]:
    names: dict[tuple[str, ...], str] = {}
    for name, table in device_tables()["devices"].items():
        for alias in (name, *table.get("aliases", ())):
            names[tokens(alias)] = name
    return names


def resolve_device(text: str) -> tuple[Preset, str]:
    """The device that `text` names and a warning ("" when the name is exact).

    Case, `-`, `_`, spaces and the order of the words do not matter. A name that fits several devices (`A100`) is
    looked up in the catalogue's `assumed` table, which says what is taken. Raises ClusterError with the nearest names.
    """
    words = tuple(w for w in tokens(text) if w not in ("nvidia", "amd", "google", "aws", "geforce", "instinct"))
    name = _names().get(words)
    if name is not None:
        return presets()[name], ""
    for assumed, table in device_tables()["assumed"].items():
        if tokens(assumed) == words:
            return presets()[table["device"]], table["warning"]
    raise ClusterError(f"No device is called {text.strip()[:60]!r}.", near(text.strip(), presets()))


def catalogue_name(gpu: str) -> str | None:
    """The catalogue's name of the device that a driver calls `gpu` (`NVIDIA H100 80GB HBM3`); None: none for sure."""
    for name in (gpu, _NOISE.sub(" ", gpu)):
        try:
            preset, assumed = resolve_device(" ".join(name.split()))
        except ClusterError:
            continue
        if not assumed:
            return preset.device.name
    return None
