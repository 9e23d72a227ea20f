"""The kernel's log: Xids of NVIDIA's driver, PCIe errors, machine checks. And lspci's ACS bits.

Meaning of Xids: NVIDIA's "XID Errors" catalogue. ACS: NCCL's troubleshooting page (PCI Access Control Services).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import CERTAIN, ERROR, INFO, LIKELY, POSSIBLE, WARNING, Finding
from meshwright.diagnose.host.facts import MOST, HostFacts, Reading, Told
from meshwright.diagnose.logs.cited import earliest, evidence
from meshwright.diagnose.logs.late import Late
from meshwright.diagnose.logs.line import Line
from meshwright.diagnose.memory.afterwards import went_on

MOST_EVIDENCE = 8
HARDWARE = {
    48: "double-bit ECC error", 61: "the microcontroller stopped", 62: "the microcontroller halted",
    64: "remapping a row failed", 74: "NVLink error", 79: "the GPU has fallen off the bus",
    92: "many single-bit ECC errors", 94: "contained ECC error", 95: "uncontained ECC error", 110: "security fault",
    119: "the GPU's system processor timed out", 120: "the GPU's system processor failed", 121: "C2C link error",
    140: "unrecovered ECC error", 145: "NVLink error", 149: "NVLink error",
}  # fmt: skip
PROVEN = {48, 64, 79, 95, 140}
"""Xids that name broken hardware and nothing else."""
NOTED = {63: "a row was remapped after an ECC error: reset the GPU when the job ends"}
PROGRAM = {
    13: "an exception in a kernel",
    31: "an illegal address",
    43: "the program's channel stopped",
    45: "clean-up",
}
_XID = Late(r"\bXid\b ?\(?(?:PCI:)?([0-9A-Fa-f:.]{4,20})?\)?:? (\d{1,3})\b")
_BUS = Late(r"NVRM: .*(?:fallen off the bus|RmInitAdapter failed)")
_PCIE = Late(r"(?:pcieport |nvme |\b)([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d)?:? ?PCIe Bus Error: severity=(\w+)")
_MACHINE = Late(r"\[Hardware Error\]: .*(?:[Uu]ncorrected|fatal|Machine check)|amdgpu.*uncorrectable hardware error")
_ACS = Late(r"ACSCtl:\s*SrcValid\+(.*)")
_COMMAND = Late(r"(?:BOOT_IMAGE=|[Kk]ernel command line:).*\b(?:intel_iommu=on|amd_iommu=on)")
ASKED = Late(r"Xid|NVRM|PCIe Bus Error|Hardware Error|amdgpu|ACSCtl|iommu=")


def read(line: Line, found: HostFacts, where: Reading) -> str:
    """Adds a line of the kernel's log or of lspci; its kind, or ""."""
    text = line.text
    if not ASKED.search(text) or len(found.faults) + len(found.programs) + len(found.bridges) >= MOST:
        return ""
    if match := _XID.search(text):
        return _xid(line, found, match[1] or "", int(match[2]))
    if _BUS.search(text):
        found.faults.append(Told(line, HARDWARE[79], ""))
    elif match := _PCIE.search(text):
        found.faults.append(Told(line, f"PCIe errors ({match[2].lower()})", match[1] or "", match[2] != "Corrected"))
    elif _MACHINE.search(text):
        found.faults.append(Told(line, "a machine check", ""))
    elif match := _ACS.search(text):
        found.bridges.append(Told(line, "ACS is on", "", "ReqRedir+" in match[1] or "CmpltRedir+" in match[1]))
        return "lspci"
    elif _COMMAND.search(text) and "iommu=pt" not in text:
        found.bridges.append(Told(line, "the IOMMU translates (no iommu=pt)", "", False))
    else:
        return ""
    return "kernel log"


def _xid(line: Line, found: HostFacts, device: str, number: int) -> str:
    if number in HARDWARE:
        found.faults.append(Told(line, f"Xid {number}: {HARDWARE[number]}", device, number in PROVEN))
    elif number in NOTED:
        found.faults.append(Told(line, f"Xid {number}: {NOTED[number]}", device, False))
    elif number in PROGRAM:
        found.programs.append(Told(line, f"Xid {number}: {PROGRAM[number]}", device))
    else:
        return ""
    return "kernel log"


def find_faults(facts: Facts) -> Iterator[Finding]:
    """Broken devices: one Finding for each device and what is said of it."""
    groups: dict[tuple[str, str], list[Told]] = {}
    for one in facts.of(HostFacts).faults:
        groups.setdefault((one.device, one.what), []).append(one)
    several = len({what for _, what in groups}) > 1
    for (device, what), same in groups.items():
        proven = any(one.sure for one in same) and what.startswith(("Xid", HARDWARE[79]))
        weak = not any(one.sure for one in same) and ("corrected" in what or "ECC errors" in what)
        confidence = CERTAIN if proven else POSSIBLE if weak and not several else LIKELY
        minor = weak or what.startswith("Xid 63")
        over = all(went_on(facts, one.line) for one in same)
        severity = WARNING if minor else ERROR
        if over:
            # Steps that follow in the same file: the run survived it, though a proven fault is worth a look.
            severity, confidence = (WARNING if proven else INFO), POSSIBLE if confidence != CERTAIN else confidence
        yield Finding(
            "hardware_fault", severity, confidence, (),
            f"{device or 'A device'}: {what}{'; steps follow it, so that the job went on' if over else ''}.",
            tuple(evidence(one.line) for one in same[:MOST_EVIDENCE]),
            "nvidia-smi -q -d ECC,ROW_REMAPPER and dmesg of that node; whether other jobs fail there too.",
            (
                "Drain the node and start the job without it.",
                "Reset the GPU; if the fault returns, reseat or replace it.",
                "Do not change NCCL settings: they cannot help.",
            ),
            earliest(one.line for one in same), weight=4 if proven else 3,
        )  # fmt: skip
    yield from _programs(facts.of(HostFacts).programs)


def _programs(told: Sequence[Told]) -> Iterator[Finding]:
    """Xids of a program: no hardware is to blame, which is worth saying."""
    if told:
        yield Finding(
            "hardware_fault", INFO, POSSIBLE, (),
            f"{told[0].what} is reported by the driver: nearly always a fault of the program, not of the hardware.",
            tuple(evidence(one.line) for one in told[:MOST_EVIDENCE]),
            "Run with CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer: the same kernel fails on another GPU.",
            ("Look for an index out of range in the kernel or the embedding that failed.",),
            earliest(one.line for one in told),
        )  # fmt: skip


def find_bridges(facts: Facts) -> Iterator[Finding]:
    """PCIe bridges or an IOMMU that send the traffic between devices through the root complex."""
    told = facts.of(HostFacts).bridges
    if told:
        sure = any(one.sure for one in told)
        yield Finding(
            "p2p_acs_iommu", WARNING, LIKELY if sure else POSSIBLE, (),
            f"Traffic between PCIe devices is redirected through the root complex: {told[0].what} ({len(told)} lines).",
            tuple(evidence(one.line) for one in told[:MOST_EVIDENCE]),
            "p2pBandwidthLatencyTest: bandwidth with P2P below that without.",
            (
                "Turn ACS off on the bridges (BIOS, or setpci ECAP_ACS+6.w=0000), or boot with iommu=pt.",
                "As a stopgap: NCCL_P2P_DISABLE=1.",
            ),
            earliest(one.line for one in told), weight=2,
        )  # fmt: skip
