"""The host as a topic of a diagnosis."""

from __future__ import annotations

from collections.abc import Iterator

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.host import bandwidth, kernel, limits, smi, stacks, topology
from meshwright.diagnose.host.facts import HostFacts, Reading
from meshwright.diagnose.logs.line import Line, holds
from meshwright.diagnose.topic import Topic

_READERS = (smi.read, kernel.read, topology.read, bandwidth.read, limits.read, stacks.read)
_KEYS = (
    ": Active", "ECC", "Uncorrectable", "Remap", "Retired", "Volatile", "Aggregate", "Pending", "GPU ", "device handle",
    "GPU0", "ffinity", "Cpus_allowed", "/dev/shm", "P2P=", "Xid", "NVRM", "PCIe Bus", "Hardware Error", "amdgpu",
    "ACSCtl", "iommu", "Process ",
)  # fmt: skip
"""A line with none of them, without a bar at its start and outside of a table is given to no reader."""


def _collect(line: Line, facts: Facts) -> str:
    found = facts.of(HostFacts)
    where = found.readings.setdefault(line.path, Reading())
    text = line.text
    if not where.mode and not text.lstrip().startswith(("|", "GPU")) and not holds(text, _KEYS):
        return ""
    for read in _READERS:
        if kind := read(line, found, where):
            found.kinds.add(kind)
            return kind
    return ""


def _checked(facts: Facts) -> Iterator[str]:
    found = facts.of(HostFacts)
    if found.kinds:
        yield f"hosts by {', '.join(sorted(found.kinds))}"


HOST = Topic(
    "host", rules=(
        kernel.find_faults, smi.find_shared, smi.find_slowed, bandwidth.find_slow_peers, kernel.find_bridges,
        topology.find_far, limits.find_limits, stacks.find_stacks,
    ), checked=_checked, collect=_collect,
)  # fmt: skip
