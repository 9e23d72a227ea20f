"""nvidia-smi: the table of processes and of GPUs, and `nvidia-smi -q` (clocks, ECC).

Layout of the tables: the driver's own (418 and older have no GI and CI columns). Clock reasons: nvml.h and NVIDIA's
nvidia-smi manual; `SW Power Cap` is usual under load and no fault.
"""

from __future__ import annotations

from collections.abc import Iterator

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import LIKELY, POSSIBLE, WARNING, Finding
from meshwright.diagnose.host.facts import MOST, HostFacts, Process, Reading, Told
from meshwright.diagnose.logs.cited import earliest, evidence
from meshwright.diagnose.logs.late import Late
from meshwright.diagnose.logs.line import Line

MOST_EVIDENCE = 8
ASKED = Late(r"^\s*\||Active$|Slowdown|ECC|Uncorrectable|Remapping|Pending|^GPU [0-9A-F]{8}:|device handle|GPU is lost")
_COMPUTE = ("C", "C+G", "M+C")
"""Types of processes that compute; G (graphics) is a desktop."""
_GPU = Late(
    r"^\s*\|\s+(\d{1,3})\s+\S.*?\|\s*[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d\s+\S+\s*\|\s*(\S+)\s*\|"
)
_HEADING = Late(r"^GPU ([0-9A-Fa-f]{8}:[0-9A-Fa-f:.]+)")
_REASON = Late(r"^\s*(HW Slowdown|HW Thermal Slowdown|HW Power Brake Slowdown|SW Thermal Slowdown)\s*: Active\s*$")
_COUNT = Late(
    r"^\s*((?:DRAM |SRAM |Double Bit )?Uncorrectable(?: Errors?)?|Double Bit ECC|Device Memory)\s*: ([1-9]\d*)\s*$"
)
_PENDING = Late(r"^\s*(Remapping Failure Occurred|Pending Page Blacklist|Pending)\s*: Yes\s*$")
_LOST = Late(
    r"Unable to determine the device handle for (?:gpu|GPU) ?"
    r"(\S+?(?:: [0-9A-Fa-f:.]+?)?):? (?:Unknown Error|GPU is lost.*|"
    r"Not Found)|"
    r"\bGPU is lost\b|GPU requires reset"
)


def read(line: Line, found: HostFacts, where: Reading) -> str:
    """Adds a line of nvidia-smi; its kind, or ""."""
    text = line.text
    if not ASKED.search(text) or len(found.processes) + len(found.faults) + len(found.slowed) >= MOST:
        return ""
    if (process := _process(line)) is not None:
        found.processes.append(process)
    elif match := _GPU.match(text):
        where.device = f"GPU {match[1]}"
        if match[2].isdigit() and int(match[2]) > 0:
            found.faults.append(Told(line, f"{match[2]} uncorrectable ECC errors", where.device))
    elif "ERR!" in text and text.lstrip().startswith("|"):
        found.faults.append(Told(line, "nvidia-smi cannot read it (ERR!)", where.device))
    elif match := _LOST.search(text):
        found.faults.append(Told(line, "nvidia-smi has lost it", f"GPU {match[1]}" if match[1] else ""))
    else:
        return _query(line, found, where)
    return "nvidia-smi"


def _process(line: Line) -> Process | None:
    """`| GPU [GI CI] PID TYPE name 123MiB |`, with or without the last bar."""
    cells = line.text.strip().strip("|").split()
    if len(cells) > 4 and cells[1] in ("N/A", *map(str, range(16))) and cells[4] in _COMPUTE:
        del cells[1:3]
    if len(cells) < 3 or cells[2] not in _COMPUTE or not (cells[0].isdecimal() and cells[1].isdecimal()):
        return None
    if len(cells[0]) > 3 or len(cells[1]) > 8:
        return None
    memory = cells[-1].removesuffix("MiB")
    return Process(line, int(cells[0]), int(cells[1]), int(memory) if memory.isdecimal() and len(memory) < 9 else None)


def _query(line: Line, found: HostFacts, where: Reading) -> str:
    """A line of `nvidia-smi -q`."""
    text = line.text
    if match := _HEADING.match(text):
        where.device, where.section = f"GPU {match[1]}", ""
    elif match := _REASON.match(text):
        found.slowed.append(Told(line, match[1], where.device, match[1].startswith("HW")))
    elif text.strip() in ("Volatile", "Aggregate", "ECC Errors", "Remapped Rows", "Retired Pages"):
        where.section = text.strip()
    elif match := _COUNT.match(text):
        found.faults.append(
            Told(line, f"{match[2]} uncorrectable ECC errors", where.device, where.section != "Aggregate")
        )
    elif (match := _PENDING.match(text)) and where.section in ("Remapped Rows", "Retired Pages"):
        found.faults.append(Told(line, f"{match[1]}: a reset or an exchange is due", where.device))
    else:
        return ""
    return "nvidia-smi"


def find_shared(facts: Facts) -> Iterator[Finding]:
    """One process on several GPUs beside others of their own: pytorch#23138. A process that has all of them for itself
    (DataParallel, device_map) is none; rows of 0 MiB (pytorch#64130) are not counted."""
    for path in sorted({one.line.path for one in facts.of(HostFacts).processes}):
        rows = [one for one in facts.of(HostFacts).processes if one.line.path == path and one.mib != 0]
        by_gpu: dict[int, set[int]] = {}
        for one in rows:
            by_gpu.setdefault(one.gpu, set()).add(one.pid)
        of_pid = {pid: {gpu for gpu, pids in by_gpu.items() if pid in pids} for pid in {one.pid for one in rows}}
        shared = [
            gpu for gpu, pids in sorted(by_gpu.items()) if len(pids) > 1 and any(len(of_pid[pid]) > 1 for pid in pids)
        ]
        if shared:
            yield _shared(shared, by_gpu, of_pid, rows)


def _shared(
    shared: list[int], by_gpu: dict[int, set[int]], of_pid: dict[int, set[int]], rows: list[Process]
) -> Finding:
    gpu = max(shared, key=lambda one: len(by_gpu[one]))
    guests = [one for one in rows if one.gpu == gpu and len(of_pid[one.pid]) > 1]
    spent = sum(sorted(one.mib or 0 for one in guests)[: len(guests) - (len(guests) == len(by_gpu[gpu]))])
    lines = [one.line for one in rows if one.pid in {guest.pid for guest in guests}]
    return Finding(
        "oom_rank0_skew", WARNING, LIKELY, (),
        f"{_processes(len(guests))} also memory on GPU {gpu}"
        f"{f' ({spent:,} MiB)' if spent else ''}: tensors were loaded or a context was made there.",
        tuple(evidence(line) for line in lines[:MOST_EVIDENCE]),
        "Print torch.cuda.current_device() on every rank before the first use of CUDA.",
        (
            "Load checkpoints with map_location='cpu' (or f'cuda:{local_rank}').",
            "Call torch.cuda.set_device(local_rank) before anything else uses CUDA.",
            "Set CUDA_VISIBLE_DEVICES for each process where a library always uses GPU 0.",
        ),
        earliest(lines), weight=3,
    )  # fmt: skip


def _processes(count: int) -> str:
    return "A process of another GPU holds" if count == 1 else f"{count} processes of other GPUs hold"


def find_slowed(facts: Facts) -> Iterator[Finding]:
    """GPUs whose clocks are held down."""
    for sure in (True, False):
        told = [one for one in facts.of(HostFacts).slowed if one.sure == sure]
        if told:
            names = ", ".join(dict.fromkeys(one.device or "a GPU" for one in told))
            yield Finding(
                "straggler_gpu", WARNING, LIKELY if sure else POSSIBLE, (),
                f"Clocks are held down on {names}: {', '.join(dict.fromkeys(one.what for one in told))}.",
                tuple(evidence(one.line) for one in told[:MOST_EVIDENCE]),
                "Compare the clocks (nvidia-smi -q -d CLOCK,PERFORMANCE) and the same kernel's time with other GPUs.",
                ("Check cooling and power of that node, or take another one.",), earliest(one.line for one in told),
                weight=2,
            )  # fmt: skip
