"""Lines of NCCL_DEBUG (NCCL 2.4 to 2.29, RCCL, aws-ofi-nccl): what was found, what was chosen, what failed.

The texts are those of src/init.cc, src/transport/{net_ib,net_socket,p2p,shm}.cc and src/misc/{param,shmutils}.cc of
NCCL and of nccl_ofi_net.c of the plug-in.
"""

from __future__ import annotations

import re

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.logs.line import Line, holds
from meshwright.diagnose.network.nccl_facts import MOST, Completion, Interface, Nccl, Segment

_KEYS = ("NCCL", "RCCL", "NET/", "via ", "Using network", "/dev/shm", "iommu=pt")
"""One of them is in every line of NCCL. Looking for plain texts keeps reading fast."""
KIND = "NCCL log"

_HOST = re.compile(r"(?<![\w.-])([\w.-]{1,253}):\d{1,9}:\d{1,9} \[\w+\] (?:\S+ )?(?:\S+ )?NCCL ")
_VERSION = re.compile(r"[NR]CCL version ?:? ?([\d.]+)")
_RANKS = re.compile(r"\bn[Rr]anks (\d{1,7})\b(?:.*\bnNodes (\d{1,6}))?")
_NETWORK = re.compile(r"(?:Using network|Assigned NET plugin) (\w+(?: Libfabric)?)")
_DEVICES = re.compile(r"NET/IB\w* ?: ?Using (\[0\].*)")
_ABSENT = re.compile(r"NET/IB\w* ?: ?No device found|NET/OFI.{0,120}(?:No eligible|no provider)", re.IGNORECASE)
_SOCKETS = re.compile(r"(NET/Socket|Bootstrap) ?: ?Using (\[0\].*|\S+:.*)")
_INTERFACE = re.compile(r"(?<![\w.<>-])([\w.<>-]{1,32}):(<IP>|[0-9a-fA-F.:%\w]+)<\d+>")
_SET = re.compile(r"\b([NR]CCL_\w+) set by environment to (.+?)\.?\s*$")
_CHANNEL = re.compile(r"\bvia (NET/AWS Libfabric|NET/\w+|P2P|SHM|direct shared memory)((?:/[\w()-]+)*)")
_GDR = re.compile(r"\bGDR ([01])\b")
# `… for GPU 42000 / HCA 0 (distance 6 > 4)` is a choice for one far pair, and no fault.
_REFUSED = re.compile(r"GPU Direct RDMA Disabled for HCA|NET/OFI.{0,80}disabling GDR")
_EFA = re.compile(
    r"Only EFA provider is supported|Failed to initialize rdma protocol|Unable to find.{0,80}efa", re.IGNORECASE
)
_PROVIDER = re.compile(r"Selected [Pp]rovider is ([\w;-]+)")
_COMPLETION = re.compile(
    r"Got completion (?:from peer (?P<peer>[^\s<]*)\S* )?with status=(?:\w+\()?(?P<status>\d{1,6})\)?.*?"
    r"vendor[ _]err[ =](?P<vendor>\d{1,9})"
)
_HCA = re.compile(r"\bhca (\S+)")
_EVENT = re.compile(r"NET/IB\w* ?: ?(\w+):\d+ Got async (?:\w+ )?event ?: ?(.{1,80})")
_SHM = re.compile(
    r"Error while creating shared memory segment \S+ ?\(size (\d{1,18})"
    r"|failed to extend /dev/shm/\S+ to (\d{1,18}) bytes"
)


def collect(line: Line, facts: Facts) -> str:
    """Takes what a line of NCCL says."""
    text = line.text
    if not holds(text, _KEYS):
        return ""
    known = facts.of(Nccl)
    before = known.lines
    found = _HOST.search(text) if " NCCL " in text else None
    host = found[1] if found else line.path
    _chosen(line, text, host, known)
    _connections(line, text, known)
    _failures(line, text, host, known)
    if found:
        known.hosts[host] = None
    return KIND if found or known.lines > before else ""


def _chosen(line: Line, text: str, host: str, known: Nccl) -> None:
    """What the job is and which network it took."""
    if "CCL version" in text and (found := _VERSION.search(text)):
        known.version = found[1]
        known.lines += 1
    if "anks " in text and (found := _RANKS.search(text)):
        known.ranks = max(known.ranks, int(found[1]))
        known.told_nodes = max(known.told_nodes, int(found[2] or 0))
        known.lines += 1
    if ("Using network" in text or "NET plugin" in text) and (found := _NETWORK.search(text)):
        known.networks.setdefault(found[1], {}).setdefault(host, line)
        known.lines += 1
    if "NET/IB" in text and _DEVICES.search(text):
        known.found.setdefault(host, line)
        known.lines += 1
    if ("device found" in text or "NET/OFI" in text) and _ABSENT.search(text):
        known.absent.setdefault(host, line)
        known.lines += 1
    if ": Using" in text and (found := _SOCKETS.search(text)) and len(known.interfaces) < MOST:
        data = found[1] != "Bootstrap"
        known.interfaces += [Interface(line, host, one[1], one[2], data) for one in _INTERFACE.finditer(found[2])][:8]
        known.lines += 1
    if "set by environment" in text and (found := _SET.search(text)):
        known.set_by_environment.setdefault(found[1], (found[2].strip(), line))
        known.lines += 1
    if "elected " in text and (found := _PROVIDER.search(text)):
        known.providers.setdefault(found[1], line)
        known.lines += 1


def _connections(line: Line, text: str, known: Nccl) -> None:
    """How ranks are joined."""
    if "via " in text and (found := _CHANNEL.search(text)):
        kind = "SHM" if found[1].startswith("direct") else found[1]
        kind += "/GDRDMA" if "GDRDMA" in found[2] else ""
        known.channels[kind] += 1
        known.channel_lines.setdefault(kind, line)
        known.lines += 1
    if "GDR " in text and (found := _GDR.search(text)):
        known.gdr_flags.setdefault(found[1] == "1", line)
    if ("RDMA" in text or "GDR" in text) and _REFUSED.search(text) and len(known.gdr_refused) < MOST:
        known.gdr_refused.append(line)
    known.gdr_allowed += "RDMA Enabled" in text
    if "P2P is disabled between" in text and len(known.p2p_refused) < MOST:
        known.p2p_refused.append(line)


def _failures(line: Line, text: str, host: str, known: Nccl) -> None:
    """What did not work."""
    if known.efa_refused is None and ("EFA" in text or "NET/OFI" in text) and _EFA.search(text):
        known.efa_refused = line
        known.lines += 1
    if known.iommu is None and "iommu=pt" in text and "issing" in text:
        known.iommu = line
        known.lines += 1
    if "Got completion" in text and (found := _COMPLETION.search(text)) and len(known.completions) < MOST:
        hca = _HCA.search(text)
        known.completions.append(
            Completion(
                line, host, found["peer"] or "", int(found["status"]), int(found["vendor"]), hca[1] if hca else ""
            )
        )
        known.lines += 1
    if "Got async" in text and (found := _EVENT.search(text)) and len(known.events) < MOST:
        known.events.append((found[1], found[2].strip(), line))
        known.lines += 1
    if ("shared memory" in text or "/dev/shm" in text) and (found := _SHM.search(text)) and len(known.segments) < MOST:
        known.segments.append(Segment(line, int(found[1] or found[2])))
        known.lines += 1
