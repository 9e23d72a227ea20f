"""The sweep: every run in its order, each in fresh ranks, its numbers kept on disk; what is there is not run again."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from meshwright.bench.about import machine_of, work_of
from meshwright.bench.agreement import agreement, with_places
from meshwright.bench.case import write_json
from meshwright.bench.crew import Crew, LocalCrew, Outcome, explained
from meshwright.bench.drift import drift_factors
from meshwright.bench.merged_trace import FILE as TRACE_FILE
from meshwright.bench.merged_trace import merge_traces
from meshwright.bench.order import Run, order_runs
from meshwright.bench.request import Request
from meshwright.bench.result import DONE, FAILED, ONE_PROCESS, REFUSED, TIMED_OUT, Bench, Predicted, Row
from meshwright.bench.rows import loss_error, row_of, slowest_steps, spread_of
from meshwright.spec.errors import RequestError
from meshwright.spec.notation import parse_layout
from meshwright.train.config.here import Here, look
from meshwright.train.config.job import Job
from meshwright.train.config.read import read_config
from meshwright.train.config.resolve import resolve
from meshwright.train.config.tree import TrainConfig
from meshwright.train.metrics.prediction import predict
from meshwright.train.metrics.throughput import mfu

REQUEST_FILE = "request.json"
OUTCOME_FILE = "outcome.json"


@dataclass(frozen=True, slots=True)
class Entry:
    """One row before it has run."""

    label: str
    layout: str
    job: Job | None
    refused: str = ""


class Sweep:
    """A bench in a folder. Construct it to have everything checked before a rank starts; iterate to run it."""

    def __init__(self, request: Request, folder: Path, *, fresh: bool = False) -> None:
        """`fresh` forgets the runs of a bench before. Raises RequestError: no layout can run, or another's folder."""
        self.request, self.folder = request, folder
        self.entries = {label: _entry(label, layout, request) for label, layout in _rows(request).items()}
        able = [entry for entry in self.entries.values() if entry.job and entry.label != ONE_PROCESS]
        if not able:
            raise RequestError(next(entry.refused for entry in self.entries.values() if entry.refused))
        self.baseline = request.baseline or able[0].label
        if self.baseline not in self.entries or self.entries[self.baseline].job is None:
            raise RequestError(f"The baseline {self.baseline!r} is none of the layouts that can run.", [able[0].label])
        runnable = [entry.label for entry in self.entries.values() if entry.job]
        first = [ONE_PROCESS] if ONE_PROCESS in runnable else []
        self.order = order_runs(runnable, self.baseline, request.repeats, request.seed, first)
        self._made: dict[str, tuple[list[Outcome], Row]] = {}
        """The row of each label, and what it was made of."""
        _claim(folder, request, fresh)

    @property
    def largest(self) -> Job:
        """The job of most ranks."""
        return max((entry.job for entry in self.entries.values() if entry.job), key=lambda job: job.ranks)

    def run(self, crew: Crew | None = None, tell: Callable[[Run, Outcome], None] | None = None) -> Iterator[Bench]:
        """Do the runs that are left; yields the Bench so far after each, and at least once."""
        outcomes = self._settled({run.index: found for run in self.order if (found := self._kept(run))})
        if crew is None and len(outcomes) == len(self.order):
            yield self.bench(outcomes)
            return
        own = crew or LocalCrew(self.largest.ranks, self.largest.device)
        try:
            outcomes = own.agree(outcomes)
            yield self.bench(outcomes)
            for run in self.order:
                if run.index not in outcomes:
                    outcomes[run.index] = self._do(run, own)
                    outcomes = self._settled(outcomes)
                    if tell:
                        tell(run, outcomes[run.index])
                    yield self.bench(outcomes)
        finally:
            if crew is None:
                own.close()

    def _settled(self, outcomes: dict[int, Outcome]) -> dict[int, Outcome]:
        """With the later runs of a row that failed once: they are not tried."""
        failed = {run.label: outcomes[run.index] for run in self.order if _failed(outcomes.get(run.index))}
        return {run.index: failed[run.label] for run in self.order if run.label in failed} | outcomes

    def run_folder(self, run: Run) -> Path:
        """Where the ranks of a run leave what they measured."""
        word = "".join(letter if letter.isalnum() else "-" for letter in run.label)[:60]
        return self.folder / "runs" / f"{run.index:03d}-{word}"

    def bench(self, outcomes: Mapping[int, Outcome]) -> Bench:
        """What is known so far."""
        found = [row for entry in self.entries.values() if (row := self._row(entry, outcomes))]
        factors = drift_factors(self.order, _medians(outcomes), self.baseline)
        rows = with_places([self._steady(row, outcomes, factors) for row in found])
        alone = [row.loss for row in rows if row.ranks == 1 and row.loss]
        reference = (alone + [row.loss for row in rows if row.label == self.baseline and row.loss] + [()])[0]
        rows = tuple(replace(row, loss_error=loss_error(row.loss, reference)) if row.loss else row for row in rows)
        job = self.largest
        return Bench(
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            command="meshwright " + shlex.join(sys.argv[1:]),
            work=work_of(job, self.request.steps, self.request.warm_up, self.request.repeats),
            machine=machine_of(job),
            baseline=self.baseline,
            rows=rows,
            agreement=agreement(rows),
            planned=len(self.order),
            finished=sum(run.index in outcomes for run in self.order),
            drift=max(factors.values(), default=1.0) / min(factors.values(), default=1.0) - 1,
        )

    def _steady(self, row: Row, outcomes: Mapping[int, Outcome], factors: Mapping[int, float]) -> Row:
        """The row with the machine's drift taken out of its times."""
        if row.step is None:
            return row
        own = [run.index for run in self.order if run.label == row.label and run.index in factors]
        step = spread_of([s * factors[index] for index in own for s in slowest_steps(outcomes[index].ranks)])
        faster = row.step.median / step.median
        rates = {name: getattr(row, name) for name in ("tokens_per_second", "samples_per_second", "mfu")}
        scaled = {name: rate and rate * faster for name, rate in rates.items()}
        return replace(row, step=step, raw_step_seconds=row.step.median, **scaled)

    def _do(self, run: Run, crew: Crew) -> Outcome:
        entry, folder = self.entries[run.label], self.run_folder(run)
        assert entry.job is not None
        folder.mkdir(parents=True, exist_ok=True)
        case = self.request.case(entry.layout, str(folder), run.repeat)
        outcome = crew.run(case, entry.job.ranks, folder, self.request.timeout_s)
        if crew.first:
            outcome = explained(outcome, folder)
            if run.repeat == 0:
                merge_traces(outcome.ranks, folder)
            write_json(folder / OUTCOME_FILE, asdict(outcome))
        return outcome

    def _kept(self, run: Run) -> Outcome | None:
        """A run's Outcome from before; one that failed for whatever passing reason, or is unreadable, is done again."""
        with suppress(OSError, ValueError, TypeError):
            found = Outcome(**json.loads((self.run_folder(run) / OUTCOME_FILE).read_text(encoding="utf-8")))
            return None if found.status in (FAILED, TIMED_OUT) else found
        return None

    def _row(self, entry: Entry, outcomes: Mapping[int, Outcome]) -> Row | None:
        """None: it has not run yet."""
        if entry.job is None:
            return Row(entry.label, entry.layout, 0, REFUSED, entry.refused)
        own = [outcomes[run.index] for run in self.order if run.label == entry.label and run.index in outcomes]
        if not own:
            return None
        before = self._made.get(entry.label)
        if before is None or before[0] != own:
            # Traffic and prediction are priced anew only for the row that has just run.
            self._made[entry.label] = own, self._made_of(entry, entry.job, own)
        return self._made[entry.label][1]

    def _made_of(self, entry: Entry, job: Job, own: list[Outcome]) -> Row:
        good = [one.ranks for one in own if one.status == DONE]
        bad = next((one for one in own if one.status != DONE), None)
        priced, missing = _predicted(job)
        if not good:
            assert bad is not None
            row = Row(entry.label, entry.layout, job.ranks, bad.status, bad.reason)
        else:
            row = row_of(entry.label, job.model, job.workload, job.layout, good, bad.status if bad else DONE)
            row = replace(row, reason=bad.reason) if bad else row
            if job.peak_flops and row.step:
                row = replace(row, mfu=mfu(job.model, job.workload, row.step.median, job.ranks, job.peak_flops))
        first = next(run for run in self.order if run.label == entry.label)
        trace = self.run_folder(first) / TRACE_FILE
        told = str(trace.relative_to(self.folder)) if trace.exists() else ""
        return replace(row, predicted=priced, prediction_missing=missing, trace=told)


def _medians(outcomes: Mapping[int, Outcome]) -> dict[int, float]:
    """The median step of each run that went well."""
    return {index: median(slowest_steps(one.ranks)) for index, one in outcomes.items() if one.status == DONE}


def _failed(outcome: Outcome | None) -> bool:
    return outcome is not None and outcome.status != DONE


def _rows(request: Request) -> dict[str, str]:
    """Label and layout of every row, the single process among them."""
    rows = {layout: layout for layout in request.layouts}
    return {ONE_PROCESS: "ddp1", **rows} if request.one_process and "ddp1" not in rows else rows


def _entry(label: str, layout: str, request: Request) -> Entry:
    """A row, resolved; with the reason where it cannot run."""
    try:
        config = read_config(None, {**request.flags, "layout": layout, "run": "bench"})
        job = resolve(config, _here(config, parse_layout(layout).devices))
    except RequestError as error:
        return Entry(label, layout, None, str(error))
    return Entry(label, str(job.layout), job)


def _here(config: TrainConfig, need: int) -> Here:
    """What there is to run on; of ranks that a launcher has started, the first `need`, where there are so many."""
    here = look(config.launch.device)
    place = here.place
    if not here.started or need > place.world_size:
        return here
    return replace(here, place=replace(place, world_size=need, local_world_size=min(place.local_world_size, need)))


def _claim(folder: Path, request: Request, fresh: bool) -> None:
    """Make the folder this request's. Raises RequestError where it is another's, or cannot be written."""
    path = folder / REQUEST_FILE
    mine = json.loads(json.dumps(asdict(request)))
    try:
        if path.exists() and not fresh and json.loads(path.read_text(encoding="utf-8")) != mine:
            raise RequestError(f"{folder} holds another bench.", ["--out FOLDER", "--fresh to measure anew"])
        if fresh:
            for old in folder.glob(f"runs/*/{OUTCOME_FILE}"):
                old.unlink(missing_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        write_json(path, mine)
    except (OSError, json.JSONDecodeError) as error:
        raise RequestError(f"{folder} cannot hold a bench: {error}.", ["--out FOLDER", "--fresh"]) from error


def _predicted(job: Job) -> tuple[Predicted | None, str]:
    prediction = predict(job)
    priced = prediction.estimate
    if priced is None:
        return None, prediction.missing
    found = Predicted(
        step_seconds=priced.step_seconds,
        tokens_per_second=priced.tokens_per_second_per_device * job.ranks,
        memory_bytes=priced.memory.peak_bytes,
        verdict=priced.memory.verdict,
        bubble=priced.bubble,
        time=dict(priced.time),
        memory=dict(priced.memory.parts),
    )
    return found, ""
