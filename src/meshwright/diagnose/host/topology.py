"""`nvidia-smi topo -m`: what lies between GPUs, and between GPUs and NICs.

Connections, near to far: X, NV#, PIX, PXB, PHB, NODE, SYS (nvidia-smi's legend). transformers#9371: with SYS between
all GPUs, P2P was slower than none. GPUDirect RDMA is used up to PXB by default (NCCL_NET_GDR_LEVEL).
"""

from __future__ import annotations

from collections.abc import Iterator

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import INFO, POSSIBLE, WARNING, Finding
from meshwright.diagnose.host.facts import MOST, HostFacts, Link, Reading
from meshwright.diagnose.logs.cited import earliest, evidence
from meshwright.diagnose.logs.late import Late
from meshwright.diagnose.logs.line import Line

FAR = ("SYS", "NODE", "PHB")
"""Through a host bridge or farther: no GPUDirect RDMA by default."""
_HEADER = Late(r"^\s*GPU0\s+GPU1\b|^\s*GPU0\s+(?:NIC0|mlx5_\d)")
_ROW = Late(r"^\s*GPU(\d{1,3})\s+((?:X|NV\d{1,3}|PIX|PXB|PHB|NODE|SYS|N/A|OK)(?:\s+\S+)*)\s*$")
_CONNECTION = Late(r"^(?:X|NV\d{1,3}|PIX|PXB|PHB|NODE|SYS)$")
_NIC = Late(r"^(?:NIC\d+|mlx\w+_\d+|bnxt\w+|efa\w*|rdmap\w+|hfi\w+)$")


def read(line: Line, found: HostFacts, where: Reading) -> str:
    """Adds a row of the matrix; its kind, or ""."""
    text = line.text
    if "GPU" not in text or len(found.links) >= MOST:
        return ""
    if _HEADER.search(text):
        where.columns = tuple(text.split("CPU Affinity")[0].split())
        return "topology"
    match = _ROW.match(text)
    if match is None:
        return ""
    cells = [cell for cell in match[2].split() if _CONNECTION.match(cell)]
    names = where.columns or tuple(f"GPU{at}" for at in range(len(cells)))
    if "X" in cells:
        found.links.append(Link(line, int(match[1]), tuple(zip(names, cells, strict=False))))
    return "topology"


def find_far(facts: Facts) -> Iterator[Finding]:
    """GPUs that reach each other only across sockets, and NICs that are far from every GPU."""
    for path in sorted({one.line.path for one in facts.of(HostFacts).links}):
        rows = [one for one in facts.of(HostFacts).links if one.line.path == path]
        between = [c for one in rows for name, c in one.columns if name.startswith("GPU") and c != "X"]
        lines = [one.line for one in rows]
        if between and all(c == "SYS" for c in between):
            yield Finding(
                "p2p_acs_iommu", WARNING, POSSIBLE, (),
                "Every pair of GPUs is connected across CPU sockets (SYS): P2P over that path can be slower than "
                "copies through host memory, and tensor parallelism or ZeRO-3 scale badly.",
                tuple(evidence(line) for line in lines[:4]), "p2pBandwidthLatencyTest, with and without P2P.",
                (
                    "Measure with NCCL_P2P_LEVEL=PHB (or NCCL_P2P_DISABLE=1) and keep what is faster.",
                    "Prefer data parallelism with gradient accumulation to layouts that talk in every layer.",
                ),
                earliest(lines), weight=1,
            )  # fmt: skip
        yield from _far_nics(rows)


def _far_nics(rows: list[Link]) -> Iterator[Finding]:
    nics = {one.gpu: [c for name, c in one.columns if _NIC.match(name)] for one in rows}
    if rows and all(nics.values()) and all(c in FAR for of_gpu in nics.values() for c in of_gpu):
        crossing = all(c == "SYS" for of_gpu in nics.values() for c in of_gpu)
        lines = [one.line for one in rows]
        yield Finding(
            "gpudirect_rdma_off", WARNING if crossing else INFO, POSSIBLE, (),
            "No NIC shares a PCIe switch with a GPU (all are at PHB, NODE or SYS): by default NCCL does not use "
            "GPUDirect RDMA over such a path.",
            tuple(evidence(line) for line in lines[:4]), "NCCL_DEBUG=INFO: `via NET/IB/0` without `/GDRDMA`.",
            (
                "Measure with NCCL_NET_GDR_LEVEL=PHB (or SYS).",
                "In a virtual machine give NCCL the true topology (NCCL_TOPO_FILE).",
            ),
            earliest(lines),
        )  # fmt: skip
