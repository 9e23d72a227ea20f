"""Commands that launch a job: torchrun, torch.distributed.launch, deepspeed, accelerate, srun, mpirun, and their flags.

Flags as torch/distributed/run.py, deepspeed/launcher/runner.py, accelerate's `launch` and Slurm's srun name them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from meshwright.diagnose.configuration.names import FLAGS, format_of, name_of
from meshwright.diagnose.configuration.values import value_of

_LAUNCHER = r"\b(?:torchrun|torch\.distributed\.(?:launch|run)|deepspeed\s+(?:--|\S+\.py)|accelerate launch)"
LAUNCHED = rf"{_LAUNCHER}|\bsrun\s|\bmpirun\s|\bmpiexec\s"
_STARTS = re.compile(LAUNCHED)
_INNER = re.compile(_LAUNCHER)
_FLAG = re.compile(r"(?<![\w-])--([A-Za-z][\w.-]{0,80})(?:[= ]\s*[\"']?([^\s\"'\\-][^\s\"'\\]*|-\d[^\s\"'\\]*))?")
_SHORT = re.compile(r"(?<![\w-])-(np|n|N)[= ]?\s*(\$?\{?\w+\}?)")
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)(?::[-=]([^}]*))?\}?")
_VISIBLE = re.compile(r"\b(?:CUDA|HIP|ROCR)_VISIBLE_DEVICES=[\"']?(\d+(?:,\d+)*)")
_PORT = re.compile(r"\bMASTER_PORT=(\d{1,6})\b")


@dataclass(slots=True)
class Command:
    """What a command says."""

    values: dict[str, int | float | bool] = field(default_factory=dict)
    is_launch: bool = False
    launchers: int = 0
    """Tasks of srun or mpirun that would each start a launcher; 0: no such thing."""


def read_command(line: str, whole: str, shell: Mapping[str, str]) -> Command:
    """What a line says; `whole` has the lines before that it goes on from, `shell` the variables that are known."""
    found = Command()
    text = expanded(line, shell)
    for word, value in _FLAG.findall(text):
        _flag(found.values, word, value)
    found.is_launch = starts = _STARTS.search(text) is not None
    if (starts and (visible := _VISIBLE.search(text))) or (
        visible := re.match(r"\s*(?:export )?" + _VISIBLE.pattern, text)
    ):
        found.values["visible"] = visible[1].count(",") + 1
    if starts and (port := _PORT.search(text)):
        found.values["port"] = int(port[1])
    if _STARTS.search(whole):
        _tasks(found, expanded(whole, shell))
    elif not starts and not found.values.keys() - {"visible"} and "visible" not in found.values:
        found.values.clear()
    return found


def expanded(text: str, shell: Mapping[str, str]) -> str:
    """With the variables that are known."""
    if "$" not in text:
        return text
    return _VARIABLE.sub(lambda one: shell.get(one[1], one[2] or one[0])[:80], text)


def _flag(values: dict[str, int | float | bool], word: str, text: str) -> None:
    name = name_of(word)
    if (numbers := format_of(word, text)) is not None:
        values[numbers] = True
        return
    if name is None and word.replace("-", "_") in ("num_gpus",):
        name = "per_node"
    if name is None:
        return
    if name in FLAGS:
        values[name] = value_of(text) is not False
        return
    value = value_of(text.split(":")[0])
    if value is not None and not isinstance(value, bool):
        values[name] = value


def _tasks(found: Command, whole: str) -> None:
    """Tasks of srun and mpirun, and whether each of them starts a launcher of its own."""
    outer = re.search(r"\b(srun|mpirun|mpiexec)\s(?P<rest>.*)", whole)
    if outer is None:
        return
    inner = _INNER.search(outer["rest"])
    head = outer["rest"][: inner.start()] if inner else outer["rest"]
    told = {name: value_of(number) for name, number in _SHORT.findall(head)}
    long = {word.replace("-", "_"): value_of(value) for word, value in _FLAG.findall(head)}
    tasks = long.get("ntasks") or told.get("n") or told.get("np")
    nodes = long.get("nodes") or told.get("N")
    per_node = long.get("ntasks_per_node")
    count = tasks if isinstance(tasks, int) else 0
    each = per_node if isinstance(per_node, int) else 0
    hosts = nodes if isinstance(nodes, int) and nodes > 0 else 0
    if inner and each > 1:
        found.launchers = count or each * (hosts or 1)
    elif inner and hosts and count > hosts:
        found.launchers = count
    elif not inner and count > 1:
        found.values.setdefault("world", count)
