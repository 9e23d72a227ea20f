"""What perftest (ib_write_bw, ib_send_bw, ib_read_bw) and iperf3 reached: the fabric without NCCL.

perftest prints its device and a table `#bytes #iterations BW peak BW average MsgRate` in MB/s (2^20 bytes) or Gb/s;
iperf3 a line `[SUM] 0.00-10.00 sec 11.5 GBytes 9.90 Gbits/sec receiver` (linux-rdma/perftest and esnet/iperf).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import POSSIBLE, WARNING, Finding
from meshwright.diagnose.logs.cited import evidence
from meshwright.diagnose.logs.line import Line
from meshwright.diagnose.network.measured import LARGE, Measured, rows_of
from meshwright.spec.collective import INTER
from meshwright.spec.units import gb_per_s

KIND = "perftest output"
ENOUGH = 32 * 2**10
"""Bytes from which a write reaches the line rate (perftest's default message has 64 KiB)."""
UNEQUAL = 0.7
"""Of the fastest device: equal NICs differ by less than 5 %; a link that fell to half its width or speed has 0.5."""
UNUSED = 0.5
"""Of what the NICs reach by themselves: NCCL's large messages reach 0.8 to 0.95 of it."""

_DEVICE = re.compile(r"Device\s+:\s*(\w+)")
_HEADER = re.compile(r"#bytes\s+#iterations\s+BW peak\[(MB|Gb)/sec\]")
_ROW = re.compile(r"^\s*(\d{1,12})\s+\d{1,15}\s+\d[\d.]{0,15}\s+(\d{1,9}(?:\.\d{1,9})?)\s+[\d.]{1,15}\s*$")
_IPERF = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) ([GM])bits/sec.*(?:receiver|sender)")
_UNITS = {"MB": 2.0**20, "Gb": 1e9 / 8}


@dataclass(frozen=True, slots=True)
class Rate:
    """The best of one device."""

    line: Line
    bytes_per_s: float


@dataclass
class Rates:
    """By device (`mlx5_0`), and those of TCP."""

    of: dict[str, Rate] = field(default_factory=dict)
    tcp: Rate | None = None
    state: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Of each file: the device and the unit of the table that is being read."""


def collect(line: Line, facts: Facts) -> str:
    """Takes a device, a header or a row."""
    known, text = facts.of(Rates), line.text
    if line.path not in known.state and not ("Device" in text or "#bytes" in text or "bits/sec" in text):
        return ""
    device, unit = known.state.get(line.path, ("", 0.0))
    if found := _DEVICE.search(text):
        known.state[line.path] = (found[1], 0.0)
    elif found := _HEADER.search(text):
        known.state[line.path] = (device, _UNITS[found[1]])
        return KIND
    elif unit and device and (found := _ROW.match(text)):
        rate = Rate(line, float(found[2]) * unit)
        before = known.of.get(device)
        if int(found[1]) >= ENOUGH and (before is None or rate.bytes_per_s > before.bytes_per_s):
            known.of[device] = rate
    elif found := _IPERF.search(text):
        known.tcp = Rate(line, float(found[1]) * (1e9 if found[2] == "G" else 1e6) / 8)
        return KIND
    return ""


def find_fabric(facts: Facts) -> list[Finding]:
    """NICs that are slower than their like, and NCCL far below what the NICs reach."""
    known = facts.of(Rates)
    return [*_unequal(known), *_unused(known, facts)]


def _unequal(known: Rates) -> Iterator[Finding]:
    if len(known.of) < 2:
        return
    fastest = max(known.of.values(), key=lambda one: one.bytes_per_s)
    slow = {name: one for name, one in known.of.items() if one.bytes_per_s < UNEQUAL * fastest.bytes_per_s}
    if slow and 2 * len(slow) < len(known.of):
        name, one = next(iter(slow.items()))
        yield Finding(
            "slow_network_other", WARNING, POSSIBLE, (),
            f"{name} reaches {gb_per_s(one.bytes_per_s)} and the fastest device {gb_per_s(fastest.bytes_per_s)}: its "
            "link runs at less than full width or speed, or shares a PCIe switch.",
            tuple(evidence(each.line) for each in (*list(slow.values())[:4], fastest)),
            "ibstat (rate), lspci -vv (LnkSta against LnkCap) of that device.",
            ("Reseat or replace cable and transceiver; set the PCIe slot to its full width.",), weight=1,
        )  # fmt: skip


def _unused(known: Rates, facts: Facts) -> Iterator[Finding]:
    """The NICs reach their rate and NCCL does not: it is no fault of the fabric (NVIDIA/nccl#2409)."""
    if not known.of or not (facts.of(Measured).texts or facts.of(Measured).reports):
        return
    rows = [row for row in rows_of(facts) if row.line.tier == INTER and row.bytes >= LARGE and row.bus_bytes_per_s]
    if not rows:
        return
    best = max(rows, key=lambda row: row.bus_bytes_per_s or 0.0)
    used = min(len(known.of), max(int(best.line.ranks_per_node), 1))
    line_rate = used * min(one.bytes_per_s for one in known.of.values())
    rate = best.bus_bytes_per_s or 0.0
    if rate < UNUSED * line_rate:
        yield Finding(
            "slow_network_other", WARNING, POSSIBLE, (),
            f"NCCL reaches {gb_per_s(rate)} between nodes where {used} NICs alone reach {gb_per_s(line_rate)}: "
            "the fabric is not the limit.",
            tuple(evidence(one.line) for one in list(known.of.values())[:4]),
            "NCCL_DEBUG=INFO: which NICs it uses, and whether every channel says /GDRDMA.",
            (
                "NCCL_IB_HCA with all NICs; NCCL_IB_QPS_PER_CONNECTION=4; NCCL_BUFFSIZE and chunk sizes up.",
                "GPUDirect RDMA on; the proxy's threads on cores near the NIC.",
            ),
            weight=2,
        )  # fmt: skip
