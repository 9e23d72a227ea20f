"""Cluster file: what was fitted as a Cluster, and as the TOML text that `plan` and `estimate --cluster` read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from meshwright.bench.comms.result import Machine, TierFit
from meshwright.spec.cluster import Cluster, Device, Link
from meshwright.spec.cluster_text import parse_cluster
from meshwright.spec.cluster_toml import to_toml
from meshwright.spec.collective import INTER, INTRA
from meshwright.spec.errors import ClusterError, RequestError
from meshwright.spec.units import duration, gb_per_s, percent
from meshwright.train.config.files import write_atomically


def measured_cluster(
    machine: Machine, fits: Sequence[TierFit], device: Device | None, host_memory_bytes: float | None = None,
    meeting_s: float = 0.0,
) -> Cluster:  # fmt: skip
    """A Cluster of `machine`'s shape with the fitted links.

    `device` is the measured one; None: the catalogue's of that name, and `cpu` for a CPU. `meeting_s`: what a
    collective behind work waits, beyond the fits. Between nodes the file has
    one NIC a node: what was measured is what all NICs of a node carry together. A tier that was not measured stays as
    the catalogue has it, or as the other tier is where the catalogue does not know the device. Raises ClusterError for
    a device that is neither measured nor known.
    """
    cluster = _bare(machine, device)
    by_tier = {one.tier: one for one in fits}
    intra, inter = by_tier.get(INTRA), by_tier.get(INTER)
    reached = cluster.device.efficiency
    if intra is not None:
        reached = replace(reached, link=1.0)
        cluster = replace(cluster, intra=_link(intra, machine))
    if inter is not None:
        reached = replace(reached, network=1.0)
        cluster = replace(cluster, inter=_link(inter, machine), nics_per_node=1.0)
    elif machine.nodes == 1 and intra is not None and device is not None:
        unknown = replace(cluster.intra, name="not measured: as inside the node")
        cluster = replace(cluster, inter=unknown, nics_per_node=float(machine.ranks_per_node))
        reached = replace(reached, network=1.0)
    first = intra or inter
    if first is not None:
        reached = replace(reached, collective_overhead_s=first.overhead_s + meeting_s, scatter=first.scatter)
    if host_memory_bytes:
        cluster = replace(cluster, host_memory_bytes=host_memory_bytes)
    name = f"{machine.ranks}x{cluster.device.name}, measured"
    return replace(cluster, name=name, device=replace(cluster.device, efficiency=reached))


def _bare(machine: Machine, device: Device | None) -> Cluster:
    """The shape with a device and usual links."""
    if device is not None:
        base = parse_cluster(f"{machine.nodes}x{machine.ranks_per_node}xcpu")
        return replace(base, device=device, warnings=())
    if not machine.catalogue_name:
        what = f"The catalogue has no device {machine.device!r}" if machine.device else "The device is not named"
        raise ClusterError(f"{what}: measure it with --compute, or name one of the catalogue.", ["--device-name H100"])
    return parse_cluster(f"{machine.nodes}x{machine.ranks_per_node}x{machine.catalogue_name}")


def _link(fitted: TierFit, machine: Machine) -> Link:
    return Link(
        f"measured {fitted.tier}", fitted.bytes_per_s, fitted.latency_s, f"{machine.source}; {described(fitted)}"
    )


def described(fitted: TierFit) -> str:
    """One line: a fit's numbers and its residual."""
    return (
        f"α {duration(fitted.latency_s)} a hop, {rate(fitted)}, {duration(fitted.overhead_s)} a "
        f"collective; {fitted.points} sizes, error {percent(fitted.median_error)} median, "
        f"{percent(fitted.worst_error)} at worst ({fitted.worst})"
    )


def rate(fitted: TierFit) -> str:
    """The bandwidth for a person."""
    at_least = "" if fitted.bandwidth_seen else " or more (no message is large enough to tell)"
    return gb_per_s(fitted.bytes_per_s) + at_least


def toml_text(cluster: Cluster, machine: Machine, fits: Sequence[TierFit], remarks: Sequence[str] = ()) -> str:
    """The file's text; comments at the top say where the numbers come from and how far they are off."""
    lines = [f"Written by `meshwright comms`: {machine.source}"]
    lines += [f"{'inside a node' if one.tier == INTRA else 'between nodes'}: {described(one)}" for one in fits]
    lines += remarks
    return "".join(f"# {line}\n" for line in lines) + "\n" + to_toml(cluster)


def check_free(path: Path, overwrite: bool) -> None:
    """Raises RequestError unless the file may be written: before anything is measured."""
    if path.is_dir():
        raise RequestError(f"{path} is a folder; --out names a file.")
    if path.exists() and not overwrite:
        raise RequestError(f"{path} exists.", ("another --out", "--force"))
    if not path.parent.is_dir():
        raise RequestError(f"--out {path}: there is no folder {path.parent}.")


def write(path: Path, text: str) -> None:
    """Write the file, whole or not at all. Raises RequestError with the system's reason."""
    try:
        write_atomically(path, text)
    except OSError as error:
        raise RequestError(f"Cannot write {path}: {error.strerror}.") from error
