"""Limits that a host sets: the size of /dev/shm, the cores that a process may use."""

from __future__ import annotations

from collections.abc import Iterator

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import LIKELY, POSSIBLE, WARNING, Finding
from meshwright.diagnose.host.facts import MOST, HostFacts, Reading
from meshwright.diagnose.logs.cited import earliest, evidence
from meshwright.diagnose.logs.late import Late
from meshwright.diagnose.logs.line import Line

SMALL_SHM = 64 * 2**20
"""Bytes: Docker's default, which DataLoader workers and NCCL outgrow (PyTorch's README, NCCL's manual)."""
FULL = 0.95
_DF = Late(
    r"^\s*\S+\s+([\d.]{1,16})([KMGTP]?)i?\s+([\d.]{1,16})([KMGTP]?)i?\s+[\d.]{1,16}[KMGTP]?i?\s+\d{1,3}%\s+/dev/shm\s*$"
)
_POWER = {"": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_AFFINITY = Late(
    r"(?:sched_getaffinity\S*|affinity)\b[^{\[]{0,40}[{\[]([\d, ]{1,2000})[}\]]|current affinity list: ([\d,\- ]+)|"
    r"Cpus_allowed_list:\s*([\d,\-]+)|current affinity mask: ([0-9a-f,]+)|CPU affinity:? ([\d,\-]+)\s*$"
)


def read(line: Line, found: HostFacts, where: Reading) -> str:
    """Adds a line of df, taskset or the like; its kind, or ""."""
    text = line.text
    if "/dev/shm" in text and (match := _DF.match(text)):
        size, used = _bytes(match[1], match[2]), _bytes(match[3], match[4])
        if size and used is not None and len(found.shm) < MOST:
            found.shm.append((line, size, used / size))
            return "df"
    if (
        ("ffinity" in text or "Cpus_allowed" in text)
        and (match := _AFFINITY.search(text))
        and len(found.affinities) < MOST
    ):
        cores = (
            bin(int(match[4].replace(",", ""), 16)).count("1")
            if match[4]
            else _cores(next(filter(None, match.groups())))
        )
        if cores:
            found.affinities.append((line, cores))
            return "affinity"
    return ""


def _bytes(number: str, unit: str) -> float | None:
    try:
        return float(number) * 1024.0 ** _POWER[unit]
    except ValueError:
        return None


def _cores(text: str) -> int:
    """Cores in a list such as `0-15,32`."""
    count = 0
    for part in text.replace(" ", "").split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            count += max(1, int(last) - int(first) + 1) if last.isdigit() else 1
    return count


def find_limits(facts: Facts) -> Iterator[Finding]:
    """A /dev/shm that is small or full, processes that are pinned to one core."""
    for line, size, used in facts.of(HostFacts).shm:
        if size <= SMALL_SHM or used >= FULL:
            yield Finding(
                "shm_too_small", WARNING, LIKELY if used >= FULL or size <= SMALL_SHM else POSSIBLE, (),
                f"/dev/shm has {size / 2**20:,.0f} MiB, {100 * used:.0f} % in use: workers and NCCL need more.",
                (evidence(line),), "df -h /dev/shm while the job runs.",
                ("Start the container with --shm-size=16g or --ipc=host (Kubernetes: an emptyDir of medium Memory).",),
                line.when, weight=2,
            )  # fmt: skip
    pinned = [line for line, cores in facts.of(HostFacts).affinities if cores == 1]
    if pinned:
        yield Finding(
            "cpu_affinity", WARNING, LIKELY, (),
            f"A process may use one CPU core only ({len(pinned)} lines say so), which its workers and threads share.",
            tuple(evidence(line) for line in pinned[:8]), "len(os.sched_getaffinity(0)) in a rank and in a worker.",
            (
                "Start with --bind-to none (mpirun), --cpus-per-task of the cores you need (Slurm), or unset "
                "OMP_PROC_BIND, KMP_AFFINITY and GOMP_CPU_AFFINITY.",
                "Reset it in worker_init_fn: os.sched_setaffinity(0, range(os.cpu_count())).",
            ),
            earliest(pinned), weight=2,
        )  # fmt: skip
