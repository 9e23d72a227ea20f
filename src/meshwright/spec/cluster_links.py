"""Links from text: what joins the devices of a node, and what joins nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from meshwright.catalog.cluster_files import link_tables
from meshwright.spec.cluster import Link
from meshwright.spec.cluster_catalog import links, near, tokens
from meshwright.spec.errors import ClusterError
from meshwright.spec.units import UnitError, gb_per_s, gbps, parse_bandwidth

KINDS = {
    "ib": ("InfiniBand", "ib-ndr"),
    "infiniband": ("InfiniBand", "ib-ndr"),
    "edr": ("InfiniBand", "ib-ndr"),
    "hdr": ("InfiniBand", "ib-ndr"),
    "ndr": ("InfiniBand", "ib-ndr"),
    "xdr": ("InfiniBand", "ib-ndr"),
    "roce": ("RoCE", "roce-400g"),
    "rdma": ("RDMA", "roce-400g"),
    "efa": ("EFA", "efa-p6"),
    "omni-path": ("Omni-Path", "omni-path"),
    "opa": ("Omni-Path", "omni-path"),
    "slingshot": ("Slingshot", "slingshot-11"),
    "ethernet": ("Ethernet", "ethernet-100g"),
    "tcp": ("Ethernet", "ethernet-100g"),
}
"""Words that may follow a speed: the network's name and the preset whose latency it has."""

NETWORK = re.compile(r"(?:([0-9]{1,6})\s*[x×*]\s*)?(.+)", re.IGNORECASE | re.DOTALL)
SPEED = re.compile(r"([0-9.]\S*(?:\s*[kKMGT]i?[Bb](?:ps|it/s|/s))?)(?:\s+([A-Za-z-]+))?")
EXAMPLES = ("100Gbps", "4x200Gbps", "400Gbps IB", "25GB/s", "ib-hdr", "ib-ndr", "roce-400g", "ethernet-100g", "efa-p4d")


@dataclass(frozen=True, slots=True)
class Network:
    """What joins nodes, as far as a text says it."""

    link: Link
    """One NIC."""
    nics: float | None
    """NICs a node; None: not said, so the device's usual number."""
    assumed: bool = False
    """The text gave one speed and no count: it is taken for the node's one NIC."""


@cache
def _names(tier: str) -> Mapping[tuple[str, ...], str]:
    """The presets of one tier by the words of their names, titles and aliases."""
    return {
        tokens(alias): name
        for name, table in link_tables()["links"].items()
        if table["tier"] == tier
        for alias in (name, table["title"], *table.get("aliases", ()))
    }


def preset_link(text: str, tier: str) -> str | None:
    """The name of the preset of `tier` (intra, inter or host) that `text` names, or None."""
    return _names(tier).get(tokens(text))


def tier_names(tier: str) -> list[str]:
    """The presets of one tier, in the catalogue's order."""
    return [name for name, table in link_tables()["links"].items() if table["tier"] == tier]


def parse_inter(text: str) -> Network:
    """What joins nodes: a speed (`100Gbps`) or NICs × speed (`4x200Gbps`), with a kind (`400Gbps IB`), or a preset.

    A speed without a count is the node's: one NIC. A preset without a count leaves the number of NICs to the device,
    unless the preset itself says it (`efa-p4d`: 4). Raises ClusterError.
    """
    match = NETWORK.fullmatch(text.strip())
    if match is None:
        raise ClusterError("The network between nodes is an empty text.", EXAMPLES)
    count = int(match[1]) if match[1] else None
    if count == 0:
        raise ClusterError(f"{text.strip()!r}: a node needs at least one NIC.", EXAMPLES[:2])
    name = preset_link(match[2], "inter")
    if name is not None:
        return Network(links()[name], count or link_tables()["links"][name].get("nics"))
    return Network(_speed(match[2], text), count or 1, assumed=count is None)


def _speed(text: str, whole: str) -> Link:
    """A NIC from `400Gbps IB`."""
    match = SPEED.fullmatch(text.strip())
    if match is None:
        raise ClusterError(f"{whole.strip()[:60]!r} is no network between nodes.", _likely(text))
    bytes_per_s = _bandwidth(match[1], whole)
    kind = (match[2] or "rdma").lower()
    if kind not in KINDS:
        raise ClusterError(f"{whole.strip()[:60]!r}: {match[2]!r} is no kind of network.", near(kind, KINDS))
    title, like = KINDS[kind]
    name = f"{title} {gbps(bytes_per_s)}" if match[2] else f"network {gbps(bytes_per_s)}"
    known = links()[like]
    return Link(name, bytes_per_s, known.latency_s, "as given; latency as " + like, known.congestion)


def _bandwidth(text: str, whole: str) -> float:
    try:
        value = parse_bandwidth(text)
    except UnitError as error:
        raise ClusterError(f"{whole.strip()[:60]!r}: {text[:40]!r} is not a bandwidth.", error.legal) from error
    if value <= 0:
        raise ClusterError(f"{whole.strip()[:60]!r}: a bandwidth must be above 0.", ("100Gbps", "25GB/s"))
    return value


def _likely(text: str) -> list[str]:
    names = tier_names("inter")
    found = near(text.strip(), names)
    return [*EXAMPLES[:4], *(found if len(found) < len(names) else EXAMPLES[4:])]


def parse_intra(text: str, usual: Link, host: Link) -> Link:
    """What joins the devices of a node, per device and direction: a preset (`nvlink3`) or a speed (`300GB/s`).

    `PCIe` without a generation is that of the host link. A speed keeps the latency of the `usual` link. Raises
    ClusterError.
    """
    words = text.strip()
    name = preset_link(host.name if words.lower() == "pcie" else words, "intra")
    if name is not None:
        return links()[name]
    if not words[:1].isdigit():
        raise ClusterError(f"{words[:60]!r} is no link inside a node.", [*near(words, tier_names("intra")), "300GB/s"])
    bytes_per_s = _bandwidth(words, words)
    return Link(f"link {gb_per_s(bytes_per_s)}", bytes_per_s, usual.latency_s, f"as given; latency of {usual.name}")
