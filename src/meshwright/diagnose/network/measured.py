"""What nccl-tests reached in this job's files, against what the catalogue says of the devices' links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import ERROR, POSSIBLE, WARNING, Evidence, Finding
from meshwright.diagnose.logs.line import Line
from meshwright.diagnose.nccl_tests.report import ReadError

if TYPE_CHECKING:
    from meshwright.diagnose.nccl_tests.report import Report
    from meshwright.spec.collective import Row

KIND = "nccl-tests output"
MOST_LINES = 20_000
"""Of one file: 8192 ranks and a table."""
LARGE = 32 * 2**20
"""Bytes from which a message's bus bandwidth is the link's, no longer the latency's (nccl-tests, PERFORMANCE.md)."""
FAR = 0.5
"""Share of the nominal bandwidth: healthy NVLink and RDMA fabrics reach 0.8 to 1.0 at large messages (MLPerf's logs:
8 H100, 458 of 450 GB/s), and links of half the width or speed 0.5."""
FAR_PCIE = 0.2
"""The same for PCIe, where 8 devices share root ports and healthy hosts reach 0.3 to 0.7."""
PCIE_LIKE = 0.12
"""Share of NVLink's bandwidth below which what was measured is PCIe's or the host's: PCIe 5.0 x16 is 63 of 450 GB/s."""
SOCKET_LIKE = 0.1
"""Share of the NICs' bandwidth that TCP sockets reach at best with one stream per NIC."""
HALF = (0.3, 0.5)
"""Shares that staging in the host's memory leaves (NVIDIA/nccl-tests#29: GPUDirect RDMA doubled the throughput)."""

_BEGIN = re.compile(r"#\s*nThread\s|\b\w+_perf(?:_mpi)?\b")
_FAILED = re.compile(r"Test (?:NCCL|CUDA) failure \S+ '([^']{1,120})")


@dataclass
class Measured:
    """Tests that lie among the files."""

    texts: dict[str, list[str]] = field(default_factory=dict)
    reports: dict[str, list[Report]] = field(default_factory=dict)
    """Of JSON files, by path."""
    failures: dict[str, Line] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)


def collect(line: Line, facts: Facts) -> str:
    """Keeps the lines of a table; they are put together when all are there."""
    known, text = facts.of(Measured), line.text
    if "failure" in text and _FAILED.search(text):
        known.failures.setdefault(line.path, line)
        return KIND
    begins = ("nThread" in text or "_perf" in text) and _BEGIN.search(text) is not None
    if begins or (line.path in known.texts and ("#" in text or text.lstrip(" ")[:1].isdigit() or "stdout" in text)):
        kept = known.texts.setdefault(line.path, [])
        if len(kept) < MOST_LINES:
            kept.append(text)
    return KIND if begins and "nThread" in text else ""


def looks_like_json(parsed: Any) -> bool:
    """nccl-tests' `-J`: results with places."""
    one = parsed[0] if isinstance(parsed, list) and parsed else parsed
    results = one.get("results") if isinstance(one, dict) else None
    return (
        isinstance(results, list) and bool(results) and isinstance(results[0], dict)
        and ("out_of_place" in results[0] or "in_place" in results[0])
    )  # fmt: skip


def read_json_file(parsed: Any, path: str, facts: Facts) -> None:
    """Raises ReadError: it is broken."""
    from meshwright.diagnose.nccl_tests.json_file import read_json

    try:
        facts.of(Measured).reports[path] = read_json(parsed, path)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        raise ReadError(f"no results of nccl-tests ({type(error).__name__})") from error


def reports_of(facts: Facts) -> dict[str, list[Report]]:
    """Every test with its lines, by file."""
    from meshwright.diagnose.nccl_tests.table import read_table

    known = facts.of(Measured)
    for path, lines in known.texts.items():
        if path not in known.reports and path not in known.broken:
            try:
                known.reports[path] = read_table("\n".join(lines), path)
            except ReadError as error:
                known.broken[path] = str(error)
    return {path: kept for path, found in known.reports.items() if (kept := [one for one in found if one.lines])}


def rows_of(facts: Facts) -> tuple[Row, ...]:
    """The measured curve: every operation, size and group; wrong data and unknown programs are left out."""
    from meshwright.diagnose.nccl_tests.read import rows_of_report

    found: list[Row] = []
    for path, reports in reports_of(facts).items():
        for report in reports:
            try:
                found += rows_of_report(report, path)
            except ReadError as error:
                facts.of(Measured).broken.setdefault(path, str(error))
    return tuple(found)


def find_slow_tests(facts: Facts) -> list[Finding]:
    """Wrong data, and bandwidths far below the link's."""
    known = facts.of(Measured)
    if not (known.texts or known.reports):
        return []
    return [*_wrong(facts), *_far_below(facts)]


def _wrong(facts: Facts) -> Iterator[Finding]:
    """The test's own check failed: a GPU, a link or a driver returns wrong values."""
    for path, reports in reports_of(facts).items():
        for report in reports:
            bad = [one for one in report.lines if one.wrong]
            if bad or report.out_of_bounds:
                size = f" at {bad[0].bytes:,} bytes" if bad else ""
                yield Finding(
                    "hardware_fault", ERROR, POSSIBLE, (),
                    f"nccl-tests ({report.program or 'a collective'}) found wrong data{size}: a GPU, a link or the "
                    "driver returns wrong values.",
                    (Evidence(path, f"{bad[0].wrong:g} wrong elements{size}" if bad else "out of bounds values"),),
                    "The same test on half of the devices, then the other; nvidia-smi -q -d ECC; dcgmi diag -r 3.",
                    ("Take the device or node out that the wrong data follow.", "NCCL_PROTO=Simple, another driver."),
                    weight=2,
                )  # fmt: skip


def _far_below(facts: Facts) -> Iterator[Finding]:
    devices = {path: report.device for path, reports in reports_of(facts).items() for report in reports}
    peaks: dict[tuple[str, str], Row] = {}
    for path in devices:
        for row in _rows_in(facts, path):
            rate, key = row.bus_bytes_per_s or 0.0, (path, row.line.tier)
            if row.bytes >= LARGE and rate > ((peaks[key].bus_bytes_per_s or 0.0) if key in peaks else 0.0):
                peaks[key] = row
    for (path, _), row in peaks.items():
        expected = expected_rate(devices[path], row)
        rate = row.bus_bytes_per_s or 0.0
        if expected is not None and rate < expected[2] * expected[0]:
            yield _slow(path, devices[path], row, expected[0], expected[1])


def _rows_in(facts: Facts, path: str) -> list[Row]:
    from meshwright.diagnose.nccl_tests.read import rows_of_report

    found: list[Row] = []
    for report in reports_of(facts)[path]:
        try:
            found += rows_of_report(report, path)
        except ReadError as error:
            facts.of(Measured).broken.setdefault(path, str(error))
    return found


def expected_rate(device: str, row: Row) -> tuple[float, str, float] | None:
    """Nominal bytes/s of the link that a row runs over, its name, and the share below which it is far too slow.

    None: the catalogue does not know the device for sure, or its link joins only some devices (no switch).
    """
    from meshwright.spec.cluster_catalog import catalogue_name, links, presets
    from meshwright.spec.collective import INTRA

    name = catalogue_name(device) if device else None
    if name is None or row.line.ranks < 2:
        return None
    preset = presets()[name]
    if row.line.tier == INTRA:
        link = links()[preset.intra]
        pcie = "PCIe" in link.name
        if preset.intra == "nvlink2" and row.line.ranks < preset.devices_per_node:
            return None
        return link.bytes_per_s, link.name, FAR_PCIE if pcie else FAR
    nic = links()[preset.host.nic]
    used = min(float(preset.host.nics), row.line.ranks_per_node)
    return nic.bytes_per_s * used, f"{used:g} × {nic.name}, as this device's hosts usually have", FAR


def _slow(path: str, device: str, row: Row, nominal: float, link: str) -> Finding:
    from meshwright.spec.collective import INTRA
    from meshwright.spec.units import binary, gb_per_s

    rate = row.bus_bytes_per_s or 0.0
    share = rate / nominal
    if row.line.tier == INTRA:
        category = "p2p_acs_iommu" if share < PCIE_LIKE else "slow_network_other"
        guess = "as if the devices had no peer-to-peer" if share < PCIE_LIKE else "so part of the links is missing"
        change = ("nvidia-smi nvlink -s and topo -m; NCCL_DEBUG=INFO must say P2P and not SHM.",
                  "ACS off, iommu=pt; restart nvidia-fabricmanager on NVSwitch machines.")  # fmt: skip
    else:
        sockets, staged = share < SOCKET_LIKE, HALF[0] <= share < HALF[1]
        category = (
            "slow_network_wrong_transport" if sockets else "gpudirect_rdma_off" if staged else "slow_network_other"
        )
        guess = ("as if it went over TCP sockets" if sockets else "as if it were staged in the host's memory"
                 if staged else "so some NICs are not used, or shared")  # fmt: skip
        change = ("NCCL_DEBUG=INFO: it must say NET/IB (or the plug-in) with /GDRDMA on every channel.",
                  "ib_write_bw between two nodes for each NIC, to tell the fabric from NCCL.")  # fmt: skip
    return Finding(
        category, WARNING, POSSIBLE, (),
        f"nccl-tests reaches {gb_per_s(rate)} of bus bandwidth in {row.operation} of {row.line.ranks} ranks, "
        f"{share:.0%} of {gb_per_s(nominal)} ({link}): {guess}.",
        (Evidence(path, f"{row.operation} of {binary(row.bytes)}: {(row.seconds or 0.0) * 1e6:.1f} us, {device}"),),
        "The same test on other nodes, and on pairs of nodes.", change, weight=1,
    )  # fmt: skip
