"""p2pBandwidthLatencyTest (cuda-samples): bandwidth between GPUs with P2P and without.

ml-engineering#1: 1.6 to 2.6 GB/s with P2P and 13 without, because the IOMMU translated the traffic, and NCCL hung.
"""

from __future__ import annotations

from collections.abc import Iterator

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import LIKELY, WARNING, Finding
from meshwright.diagnose.host.facts import MOST, HostFacts, Matrix, Reading
from meshwright.diagnose.logs.cited import evidence
from meshwright.diagnose.logs.late import Late
from meshwright.diagnose.logs.line import Line

SLOWER = 0.8
"""With P2P over without: the test varies by up to 10 % between runs (cuda-samples#449)."""
_HEADER = Late(r"(Unidirectional|Bidirectional) P2P=(Disabled|Enabled) Bandwidth (?:\(P2P \w+\) )?Matrix \(GB/s\)(.*)")
_ROW = Late(r"^\s*(\d{1,3})((?:\s+\d{1,6}\.\d{1,4})+)\s*$")
_COLUMNS = Late(r"^\s*D\\D\s+\d")


def read(line: Line, found: HostFacts, where: Reading) -> str:
    """Adds a row of a matrix; its kind, or ""."""
    header = _HEADER.search(line.text) if "P2P=" in line.text and len(found.matrices) < MOST else None
    if header is not None:
        found.matrices.append(Matrix(line, header[1], header[2] == "Enabled"))
        where.mode, text = "matrix", header[3]
    elif where.mode == "matrix":
        text = line.text
    else:
        return ""
    if row := _ROW.match(text):
        found.matrices[-1].rows[int(row[1])] = tuple(float(one) for one in row[2].split())
    elif text.strip() and not _COLUMNS.match(text):
        where.mode = ""
        return ""
    return "p2pBandwidthLatencyTest"


def find_slow_peers(facts: Facts) -> Iterator[Finding]:
    """Pairs of GPUs that are slower with P2P."""
    matrices = facts.of(HostFacts).matrices
    for path in sorted({one.line.path for one in matrices}):
        for direction in ("Unidirectional", "Bidirectional"):
            of_path = [one for one in matrices if one.line.path == path and one.direction == direction]
            without = next((one for one in of_path if not one.enabled), None)
            for peers in (one for one in of_path if one.enabled and without is not None):
                assert without is not None
                if slow := _slower(peers, without):
                    yield _finding(peers, without, slow)
                    break
            else:
                continue
            break


def _slower(peers: Matrix, without: Matrix) -> list[tuple[int, int, float, float]]:
    """(from, to, GB/s with, GB/s without) of pairs that P2P makes slower, the worst first."""
    pairs = [
        (row, column, gbps, without.rows[row][column])
        for row, values in peers.rows.items()
        for column, gbps in enumerate(values)
        if row != column and row in without.rows and column < len(without.rows[row])
    ]
    return sorted((one for one in pairs if one[2] < SLOWER * one[3]), key=lambda one: one[2] / one[3])


def _finding(peers: Matrix, without: Matrix, slow: list[tuple[int, int, float, float]]) -> Finding:
    row, column, gbps, staged = slow[0]
    return Finding(
        "p2p_acs_iommu", WARNING, LIKELY, (),
        f"P2P between GPUs is slower than no P2P for {len(slow)} pairs: GPU {row} to GPU {column} {gbps:g} GB/s with "
        f"it and {staged:g} without. ACS or an IOMMU redirects the traffic, or it crosses sockets.",
        (evidence(without.line), evidence(peers.line)), "`lspci -vvv | grep ACSCtl` shows SrcValid+.",
        (
            "Turn ACS off on the PCIe bridges and the IOMMU off in the BIOS (or boot with iommu=pt).",
            "As a stopgap: NCCL_P2P_DISABLE=1, or NCCL_P2P_LEVEL at the level that measures faster.",
        ),
        peers.line.when, weight=3,
    )  # fmt: skip
