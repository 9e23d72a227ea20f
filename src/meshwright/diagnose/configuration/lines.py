"""Lines of logs, scripts and flat YAML that say what a job was told.

Read: Megatron-LM's table of arguments (`name ..... value`), `key: value` (accelerate's YAML, which nests nothing that
is read here; anchors, lists and blocks are not read), `key=value` in constructors and printed configurations, shell
variables, flags of commands. Longer lines than a log's are cut by the log's reader.
"""

from __future__ import annotations

import re

from meshwright.diagnose.configuration import refusals
from meshwright.diagnose.configuration.command import read_command
from meshwright.diagnose.configuration.names import FLAGS, NAME, ONLY_IN_FILES, PRECISIONS, format_of, name_of
from meshwright.diagnose.configuration.notes import counted
from meshwright.diagnose.configuration.settings import COMMAND, FILE, PRINTED, PROSE, Setting, Settings
from meshwright.diagnose.configuration.values import value_of
from meshwright.diagnose.facts import Facts
from meshwright.diagnose.logs.line import Line, holds

MOST_REFUSALS = 256
_TABLE = re.compile(
    r"^\s*+(?:(?:\[[^\]]{1,60}\]:?\s*+){1,5}|\d{1,6}:)?\s*+([a-z][a-z0-9_]{1,60})\s\.{3,}\s(\S{1,40})\s*$"
)
_PAIR = re.compile(r"(?<![\w-])([A-Za-z]\w{1,60})(?:: [A-Za-z]+)?[\"']?\s?(?:= ?(?!=)|: ?)[\"']?([-\w.+]{1,40})")
_YAML = re.compile(r"^\s{0,8}([A-Za-z]\w{0,60}):\s+[\"']?([-\w.+]{1,40})[\"']?\s*(?:#.*)?$")
_SHELL = re.compile(r"^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]{0,60})=[\"']?([-\w.,]{0,80})[\"']?\s*(?:#.*|;.*)?$")
_COUNTS = re.compile(r"\d\s+(?:attention |query |kv )?(?:experts?|kv heads?|query heads)\b|ep_size of", re.IGNORECASE)
_MODEL = re.compile(r"--(?:model|model[-_]name|model[-_]name[-_]or[-_]path)[ =]([\w./-]{3,120})")
_PREFIX = re.compile(r"^\s*\[rank\d+\]:\s*|^\s*\d+:\s")
_SIGNS = (
    "--",
    "=",
    "srun ",
    "mpirun ",
    "mpiexec ",
    "torchrun ",
    "deepspeed ",
    "accelerate launch",
    "torch.distributed.",
)
"""What a line of a command has, one of them at least."""


def collect(line: Line, facts: Facts) -> str:
    """Adds what a line says to the facts; names what kind of file it makes of it."""
    settings, text, kind = facts.of(Settings), line.text, ""
    # Nearly every line has a colon: what is cheap to ask is asked first.
    if len(settings.refusals) < MOST_REFUSALS and (refused := refusals.refusal_in(line)):
        settings.refusals.append(refused)
        kind = "log"
    if "..... " in text and (table := _TABLE.match(text)):
        return _keep(line, settings, table[1], table[2], PRINTED) and "arguments"
    kind = _command(line, settings) or _pairs(line, settings) or kind
    if holds(text, ("expert", "head", "ep_size")) and _COUNTS.search(text):
        for name, number in counted(text).items():
            settings.add(name, Setting(number, PROSE, line.path, text, line.number, line.rank))
    return kind


def _command(line: Line, settings: Settings) -> str:
    before = settings.unfinished.pop(line.path, "") if settings.unfinished else ""
    if not before and not holds(line.text, _SIGNS) and not line.text.endswith("\\"):
        return ""
    text = _PREFIX.sub("", line.text)
    shell = settings.shell.setdefault(line.path, {})
    if not before and (variable := _SHELL.match(text)) and len(shell) < 1000:
        shell[variable[1]] = variable[2]
        kept = _keep(line, settings, variable[1], variable[2], COMMAND)
        return "launch command" if kept else ""
    if text.rstrip().endswith("\\") and len(before) < 16_000:
        settings.unfinished[line.path] = before + text.rstrip()[:-1] + " "
        # The whole command is read at its end; a log that ends here is read so far.
    found = read_command(text, before + text, shell)
    if model := _MODEL.search(text):
        settings.models[line.path] = model[1]
    for name, value in found.values.items():
        settings.add(name, Setting(value, COMMAND, line.path, text, line.number, line.rank))
    if found.launchers:
        settings.launches.append(Setting(found.launchers, COMMAND, line.path, (before + text)[:600], line.number))
    return "launch command" if found.values or found.is_launch else ""


def _pairs(line: Line, settings: Settings) -> str:
    text = line.text
    kept = ""
    if ":" not in text and "=" not in text:
        return kept
    if len(text) < 120 and (yaml := _YAML.match(text)):
        return _keep(line, settings, yaml[1], yaml[2], FILE) and "configuration"
    for word, value in _PAIR.findall(text):
        if word in PRECISIONS or (word in NAME and word not in ONLY_IN_FILES):
            kept = _keep(line, settings, word, value, COMMAND) or kept
    return "log" if kept else ""


def _keep(line: Line, settings: Settings, word: str, text: str, strength: int) -> str:
    """Keeps one value; "": it is none that is read."""
    name, value = name_of(word), value_of(text)
    if (numbers := format_of(word, text)) is not None:
        name, value = numbers, True
    if name is None or value is None:
        return ""
    # `bucket_size=True` is a fault to be found: only flags and this one may be true or false.
    if isinstance(value, bool) != (name in FLAGS) and name != "bucket_size":
        return ""
    settings.add(name, Setting(value, strength, line.path, line.text, line.number, line.rank))
    return name
