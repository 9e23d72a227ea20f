"""Lines that tell of a process of the host which was killed, or which got no memory.

Wordings: Linux mm/oom_kill.c and mm/memcontrol.c; Slurm's src/slurmd/slurmstepd/req.c; Kubernetes' `OOMKilled`; Docker;
torch/distributed/elastic (exit codes); torch/utils/data/_utils/signal_handling.py; c10/core/impl/alloc_cpu.cpp.
"""

from __future__ import annotations

import re

from meshwright.diagnose.logs.late import Late
from meshwright.diagnose.logs.line import Line
from meshwright.diagnose.memory.facts import MOST, Kill, MemoryFacts
from meshwright.diagnose.memory.sizes import SIZE, in_bytes

_KERNEL = Late(
    r"[Oo]ut of memory: Kill(?:ed)? process (?P<pid>\d+) \((?P<name>[^)]{1,64})\)(?P<rest>.*)|"
    r"oom-kill:constraint=(?P<constraint>\w+).{0,400}?task=(?P<task>[^,]{1,64})|"
    r"(?P<invoker>\S{1,64}) invoked oom-killer|"
    r"Killed process (?P<pid2>\d+),? (?:\((?P<name2>[^)]{1,64})\))?"
)
_SLURM = Late(
    r"[Dd]etected (\d+) oom[-_]kill event|OOM Killed|oom-kill event\(s\)|task \d+: Out [Oo]f [Mm]emory|"
    r"State=OUT_OF_MEMORY|\bOUT_OF_ME(?:MORY|\+)|Exceeded (?:job|step) memory limit|exceeded memory limit"
)
_CONTAINER = Late(r"\bOOMKilled\b|oom_kill [1-9]\d*\b|(?:exit code|exitCode:?) 137\b")
_WORKER = Late(r"DataLoader worker \(pid\(?s?\)?:? ?[\d, ]+\) (?:is|was) killed by signal: Killed|worker .*SIGKILL")
_ALLOC = Late(
    r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory)|std::bad_alloc|\bMemoryError\b|"
    r"\[Errno 12\] Cannot allocate memory|Unable to allocate .* for an array|cudaHostAlloc.*out of memory"
)
_EXIT = Late(
    r"exit ?code\s*:? *\(?-9\b|exitcode: ?-9\b|exited with exit code -9\b|[Ss]ignal 9 \(SIGKILL\)|"
    r"with (?:signal|exit signal) (?:9|SIGKILL)|died with <Signals\.SIGKILL|return code\s?=?\s?-9\b|"
    r"^\s*(?:\S+ line \d+:\s*\d+ )?Killed(?:\s{4,}|\s*$)|"
    r"^\[\d+\][+-]?\s+(?:\d+ )?Killed\b|zsh: killed|SIGKILL\W+received|"
    r"[Ee]xited with exit code 137\b"
)
_OTHER = Late(
    r"exit ?code\s*:? *\(?(?:-(?!9\b|15\b|2\b)\d+|[1-9]\d*)\b|return code\s?=?\s?[1-9]|"
    r"DUE TO TIME LIMIT|DUE TO PREEMPTION|"
    r"[Ww]atchdog caught collective|Watchdog caught|SIGABRT|Signal 11\b"
)
_NOT_OTHER = Late(r"exit ?code\s*:? *\(?137\b")
_LOADING = Late(
    r"[Ll]oading (?:checkpoint|model|weights|pretrained|shards|pipeline|safetensors|state)|from_pretrained|"
    r"Loading \S{0,40}(?:checkpoint|weights|shards)|[Bb]uilding model|Initializing model"
)
_RESUMED = Late(r"[Rr]esum(?:e|ed|ing)\b.{0,60}(?:checkpoint|from|training|step|iteration)|after resume|without resume")
_STEP = Late(
    r"\bstep\W{0,3}\s*[1-9]\d*\b|\biteration\s+[1-9]\d*/|\biter\W{0,3}\s*[1-9]\d*\b|\bepoch\W{0,3}\s*[2-9]\d*\b|"
    r"\bEpoch:? ?\[?\d+\]?\[\d+/\d+\]|'loss': [\d.]+"
)
_HOST_SIZE = Late(
    rf"(?:\b(?:RSS|rss|VmRSS|max_?rss|host[_ ]memory|cpu[_ ]mem(?:ory)?|ram)(?:_used|_usage)?\b\W{{0,4}}[:=]?\s*|"
    rf"CPU Virtual Memory:\s*used = ){SIZE}"
)
"""deepspeed's see_memory_usage, psutil's rss, /proc/PID/status."""
_ELASTIC_HOST = Late(r"\s*host\s*: (\S{1,120})\s*$")
_HOST = Late(
    r"^(?:\w{3} +\d{1,2} \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\S{8,32}) ([\w.-]{1,80}) kernel:|"
    r"(?:srun|slurmstepd(?:-\S{1,80})?): error: ([\w.-]{1,80}): task (?P<task>\d{1,6}):"
)
"""syslog's prefix of the kernel's lines, and Slurm's of a task's."""
_ELASTIC_RANK = Late(r"\s*rank\s*: (\d{1,6}) \(local_rank")
_RANK = Late(r"\brank\s*:? ?(\d{1,6})\b|local_rank: (\d{1,4})")
_GROWS = Late(
    r"\b(?:memory|RAM|RSS)\b.{0,40}\b(?:(?:becomes?|gets?|keeps?)\b.{0,20}(?:larger|grow|increas|bigger)|"
    r"grow(?:s|ing)|increas(?:es|ing))", re.IGNORECASE,
)  # fmt: skip
"""A person's words."""
MOST_LOADING = 16


def note(line: Line, found: MemoryFacts) -> None:
    """Adds what a line tells of when it was: loading, resumed, stepping; and of host memory in use."""
    text = line.text
    if _LOADING.search(text) and len(found.loading) < MOST_LOADING:
        found.loading.append(line)
    if _RESUMED.search(text) and len(found.resumed) < MOST_LOADING:
        found.resumed.append(line)
    if match := _HOST_SIZE.search(text):
        sizes = found.host_sizes.setdefault((line.path, line.rank), [])
        if len(sizes) < MOST:
            sizes.append((line, in_bytes(*match.groups())))
    if says_growing(text) and len(found.growing) < MOST_LOADING:
        found.growing.append(line)


def note_step(line: Line, found: MemoryFacts) -> None:
    """Adds the file of a line that tells of a step."""
    if _STEP.search(line.text):
        found.stepped.add(line.path)


def look(line: Line, found: MemoryFacts) -> bool:
    """Adds a process that was killed, and other ends; whether the line tells of one."""
    kill = _kill(line, found)
    if kill is not None:
        if len(found.kills) < MOST:
            found.kills.append(kill)
    elif _OTHER.search(line.text) and not _NOT_OTHER.search(line.text) and len(found.other_exits) < MOST:
        found.other_exits.append(line)
        rank, host = _report(line, found)
        if rank is not None and host:
            found.hosts[line.path, rank] = host
        return True
    return kill is not None


def says_growing(text: str) -> bool:
    """Whether a person says that memory grows."""
    return _GROWS.search(text) is not None


def _kill(line: Line, found: MemoryFacts) -> Kill | None:
    text = line.text
    named = _HOST.search(text)
    host = next((one for one in named.groups() if one), "") if named else ""
    rank = int(named["task"]) if named and named["task"] else line.rank
    if ("Kill" in text or "oom-kill" in text) and (match := _KERNEL.search(text)):
        groups = match.groupdict()
        name = groups["name"] or groups["task"] or groups["name2"] or groups["invoker"] or ""
        return Kill(line, "kernel", line.rank, name, host)
    for how, pattern in (("slurm", _SLURM), ("container", _CONTAINER), ("worker", _WORKER), ("alloc", _ALLOC)):
        if pattern.search(text):
            return Kill(line, how, rank, "", host, bool(named and named["task"]))
    if _EXIT.search(text):
        told = _RANK.search(text)
        own = next((int(one) for one in told.groups() if one), None) if told else rank
        report = _report(line, found)
        local = told is not None and told[1] is None
        return Kill(line, "exit", report[0] if own is None else own, "", host or report[1], local)
    return None


def _report(line: Line, found: MemoryFacts) -> tuple[int | None, str]:
    """The rank and the host that torch's elastic agent names some lines above an exit code."""
    lines = found.contexts[line.path].lines.get(line.rank, ()) if line.path in found.contexts else ()
    near = [one.text for one in list(lines)[-4:]]
    ranks = (int(match[1]) for text in near if (match := _ELASTIC_RANK.match(text)))
    hosts = [match[1] for text in near if (match := _ELASTIC_HOST.match(text))]
    return max(ranks, default=None), hosts[-1] if hosts else ""
