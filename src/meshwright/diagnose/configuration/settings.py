"""Settings: what a job was told, by name, with the place where it says so; and which files speak of one job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from meshwright.diagnose.configuration.named import shape_of
from meshwright.diagnose.configuration.names import FLAGS
from meshwright.diagnose.configuration.refusals import Refusal
from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import Evidence

PROSE, FILE, COMMAND, PRINTED = range(4)
"""How much a place counts: words of a person, a configuration file, a command, what the program said it uses."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One value of one quantity."""

    value: int | float | bool
    strength: int
    path: str
    text: str
    line: int | None = None
    rank: int | None = None

    def evidence(self) -> Evidence:
        """Where it is said."""
        return Evidence(self.path, self.text.strip()[:300], self.line, rank=self.rank)


@dataclass
class Settings:
    """All that was read, by file."""

    of: dict[str, dict[str, Setting]] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    shell: dict[str, dict[str, str]] = field(default_factory=dict)
    """Variables that a script sets, by file."""
    unfinished: dict[str, str] = field(default_factory=dict)
    """A command that goes on in the next line, by file."""
    models: dict[str, str] = field(default_factory=dict)
    """What a file calls the model."""
    launches: list[Setting] = field(default_factory=list)
    """Commands that start a launcher in every task: value is the number of tasks."""

    def add(self, name: str, setting: Setting) -> None:
        """Keeps the value, unless a stronger place of the same file said another."""
        known = self.of.setdefault(setting.path, {})
        before = known.get(name)
        if before is None or before.strength <= setting.strength:
            known[name] = setting


@dataclass(frozen=True, slots=True)
class Job:
    """What is known of one job."""

    settings: Mapping[str, Setting]
    model: str = ""
    """What a file calls the model."""

    def number(self, name: str) -> int:
        """A positive whole number; 0: not told."""
        found = self.settings.get(name)
        value = 0 if found is None or isinstance(found.value, bool) else found.value
        return int(value) if value == int(value) and value > 0 else 0

    def on(self, name: str) -> bool:
        """Whether a flag is set."""
        found = self.settings.get(name)
        return found is not None and found.value is True

    def off(self, name: str) -> bool:
        """Whether a flag is said to be not set."""
        found = self.settings.get(name)
        return found is not None and found.value is False

    def evidence(self, *names: str) -> tuple[Evidence, ...]:
        """Where these are said, each line once."""
        return tuple(dict.fromkeys(self.settings[name].evidence() for name in names if name in self.settings))

    def is_told(self, *names: str) -> bool:
        """Whether all that are known of these were set, and not only mentioned in words."""
        return all(self.settings[name].strength > PROSE for name in names if name in self.settings)

    @property
    def world(self) -> int:
        """Ranks in all; 0: not told."""
        if told := self.number("world"):
            return told
        return max(self.number("nodes"), 1) * self.local if self.local else 0

    @property
    def local(self) -> int:
        """Ranks of one node; 0: not told."""
        return self.number("nproc") or self.number("per_node") or self.number("tasks_per_node")

    @property
    def model_ranks(self) -> int:
        """Ranks that hold one copy of the model together: tensor × pipeline × context."""
        return max(self.number("tp"), 1) * max(self.number("pp"), 1) * max(self.number("cp"), 1)

    @property
    def data_ranks(self) -> int:
        """Ranks that read different data; 0: not told, or the layout does not fill the world."""
        told = self.number("dp") or self.number("dp_shard") * max(self.number("dp_replicate"), 1)
        if told:
            return told
        return self.world // self.model_ranks if self.world and self.world % self.model_ranks == 0 else 0


def jobs(facts: Facts) -> list[Job]:
    """The jobs that the files speak of: one, where they agree; else one a folder, or one a file."""
    settings = facts.of(Settings)
    return [_job(settings, paths) for paths in _groups(settings)[1].values()]


def job_at(facts: Facts, path: str) -> Job:
    """The job of a file that may say nothing of it: its own group's, else what its folder agrees on."""
    settings = facts.of(Settings)
    key, groups = _groups(settings)
    if key(path) in groups:
        return _job(settings, groups[key(path)])
    beside = [one for one in settings.of if folder(one) == folder(path)]
    return _job(settings, beside) if _agree(settings.of[one] for one in beside) else Job({})


def _groups(settings: Settings) -> tuple[Callable[[str], str], dict[str, list[str]]]:
    """The finest part of the paths that must be the same for files to agree, and the files by it."""
    keys: tuple[Callable[[str], str], ...] = (lambda path: "", folder, lambda path: path)
    for key in keys:
        groups: dict[str, list[str]] = {}
        for path in settings.of:
            groups.setdefault(key(path), []).append(path)
        if all(_agree(settings.of[path] for path in paths) for paths in groups.values()):
            break
    return key, groups


def _job(settings: Settings, paths: Iterable[str]) -> Job:
    """What the files say, and of the model that they name what they don't say."""
    paths = list(paths)
    known = joined(settings.of[path] for path in paths)
    for path in paths:
        if path in settings.models:
            for name, number in shape_of(settings.models[path]).items():
                known.setdefault(name, Setting(number, PROSE, path, f"model: {settings.models[path]}"))
    return Job(known, next((settings.models[path] for path in paths if path in settings.models), ""))


def folder(path: str) -> str:
    """Of a file, or of a member of an archive."""
    return path.rpartition("/")[0]


def _agree(files: Iterable[Mapping[str, Setting]]) -> bool:
    """Whether no two files set the same quantity differently from places that count the same."""
    seen: dict[tuple[str, int], object] = {}
    for one in files:
        for name, setting in one.items():
            if setting.strength == PROSE or name in FLAGS:
                continue
            if seen.setdefault((name, setting.strength), setting.value) != setting.value:
                return False
    return True


def joined(files: Iterable[Mapping[str, Setting]]) -> dict[str, Setting]:
    """Of each quantity the value from the place that counts most."""
    found: dict[str, Setting] = {}
    for one in files:
        for name, setting in one.items():
            if name not in found or found[name].strength < setting.strength:
                found[name] = setting
    return found
