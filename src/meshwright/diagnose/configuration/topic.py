"""Launch commands and configurations as a topic of a diagnosis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from meshwright.diagnose.configuration import batch, divisibility, documents, lines, model, refused, reshard, world
from meshwright.diagnose.configuration.settings import Job, Setting, Settings, jobs
from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import ERROR, INFO, POSSIBLE, WARNING, Evidence, Finding
from meshwright.diagnose.logs.line import Line, holds
from meshwright.diagnose.metrics.series import runs
from meshwright.diagnose.topic import Document, Topic

OF_JOBS = (
    world.world, world.devices, world.port, world.across_nodes, world.buckets, batch.batch, divisibility.heads,
    divisibility.groups, divisibility.sequence, divisibility.ulysses, model.stages, model.experts, model.tied,
    model.vocabulary,
)  # fmt: skip


def _collect(line: Line, facts: Facts) -> str:
    if "GB" in line.text or "NVL" in line.text:
        facts.of(world.Devices).rack |= bool(world.RACK.search(line.text))
    if holds(line.text, reshard.HINTS):
        reshard.collect(line, facts)
        return lines.collect(line, facts) or "log"
    return lines.collect(line, facts)


def _rule(facts: Facts) -> Iterator[Finding]:
    settings, known = facts.of(Settings), jobs(facts)
    told: list[Finding] = []
    for refusal in settings.refusals:
        job = _of(refusal.evidence, known)
        told += (*batch.refused_product(refusal, job.world), *refused.refused(refusal, job))
    computed = [one for job in known for rule in OF_JOBS for one in rule(job)]
    yield from told
    # What a program refused in its own words is not said a second time.
    refused_ones = {one.category for one in told} | ({"tp_comm_bound"} if facts.of(world.Devices).rack else set())
    trained = any("loss" in run.points[-1].values for run in runs(facts))
    yield from (_after_steps(one) if trained else one for one in computed if one.category not in refused_ones)
    for launch in settings.launches:
        yield world.double_launch(launch)
    for line in facts.of(reshard.Mismatches).lines:
        yield from reshard.resharded(line, _of(Evidence(line.path, ""), known))


def _after_steps(one: Finding) -> Finding:
    """What a job that made steps was configured to: its framework took it, so it is no reason of a failure.

    Layers that do not fill stages were dropped silently by Megatron-LM (issue #1304): that stays a warning.
    """
    if one.severity != ERROR or one.category in ("small_messages", "checkpoint_reshard"):
        return one
    if one.category == "pipeline_layout":
        return replace(one, severity=WARNING)
    return replace(one, severity=INFO, confidence=POSSIBLE)


def _of(evidence: Evidence, known: list[Job]) -> Job:
    """The job whose file this is; the only one, where there is one."""
    if len(known) == 1:
        return known[0]
    same = [job for job in known if any(_path(one) == evidence.path for one in job.settings.values())]
    return same[0] if same else Job({})


def _path(setting: Setting) -> str:
    return setting.path


def _checked(facts: Facts) -> Iterator[str]:
    files = {path: found for path, found in facts.of(Settings).of.items() if found}
    if files:
        count = len({name for found in files.values() for name in found})
        yield (
            f"{count} settings of the launch and the configuration: batch equation, world and layout, divisibility of "
            "heads, layers, experts, sequence and vocabulary, devices, port"
        )


def _missing(facts: Facts) -> Iterable[str]:
    if not any(facts.of(Settings).of.values()):
        yield "a launch command or a configuration (DeepSpeed JSON, Megatron-LM's arguments, accelerate's YAML, TOML)"


CONFIGURATION = Topic(
    "configuration", rules=(_rule,), checked=_checked, missing=_missing,
    documents=(Document("configuration", documents.looks_like, documents.read),),
    collect=_collect, of_programs=True,
)  # fmt: skip
