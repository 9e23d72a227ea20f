"""The summary of a Study in sentences. Ratios are of medians; a difference inside the spreads is called noise.

"Slower" compares step times: 9 % slower is a step of 109 ms where the other has 100 ms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from meshwright.bench.result import DONE, Agreement, Bench
from meshwright.report.study import Entry, Study, loss_reference, printable, same_within_noise, usable
from meshwright.spec.units import binary, count, duration

SAME_TRAINING = 0.01
"""Largest relative difference to the baseline's loss that is called agreement."""
GOOD_ORDER, GOOD_REGRET, GOOD_ERROR = 0.8, 0.05, 0.2
"""Spearman, regret and median error of the step time at which a plan is called right."""
REASON = 160
"""Characters of a reason that the summary shows."""
NAMED = 6
"""Entries that one sentence names."""


def summary(study: Study) -> tuple[str, ...]:
    """What a reader wants to know first: fastest, smallest, what each bought and cost, failures, plan, loss."""
    found: list[str] = [not_comparable(study)] if study.differences else []
    for group in study.groups:
        found += _alone(group, study) if study.differences else _group_sentences(group, study.front, study.runs)
    for name, bench in study.runs:
        if bench.agreement is not None:
            found.append((f"{name}: " if len(study.runs) > 1 else "") + plan_sentence(bench.agreement))
    return tuple(found)


def not_comparable(study: Study) -> str:
    """Why rows of different runs are not compared: what differs, with each run's value."""
    told = "; ".join(
        f"{difference.what} ({', '.join(f'{run}: {value}' for run, value in difference.values)})"
        for difference in study.differences
    )
    return f"The runs cannot be compared, because their work differs in {told}. Each is judged by itself."


def progress(bench: Bench) -> str:
    """How far a bench is that is not done; empty for one that is."""
    return f"{bench.finished} of {bench.planned} runs done" if bench.finished < bench.planned else ""


def _alone(group: Sequence[Entry], study: Study) -> list[str]:
    """The sentences of one run among several: each opens with the run, so that the layouts need not."""
    if not group:
        return []
    start = f"{group[0].run}: "
    short = [replace(entry, name=entry.name.removeprefix(start)) for entry in group]
    front = {name.removeprefix(start) for name in study.front if name.startswith(start)}
    return [start + sentence for sentence in _group_sentences(short, frozenset(front), study.runs)]


def _group_sentences(group: Sequence[Entry], front: frozenset[str], runs: Sequence[tuple[str, Bench]]) -> list[str]:
    measured = [entry for entry in group if entry.place is not None]
    if not measured:
        return ["No layout has been measured.", *failures(group)]
    # Of several runs the baseline of the first is the baseline of all; each row's loss is beside its own run's.
    base = next((e for run, _ in runs for e in measured if e.is_baseline and e.run == run), None)
    fastest = measured[0]
    smallest = min((e for e in measured if e.memory is not None), key=lambda e: e.memory or 0.0, default=None)
    found = [fastest_sentence(measured, base)]
    if smallest is not None and smallest is not fastest:
        found.append(smallest_sentence(smallest, base))
    others = [e for e in measured if e.name in front and e not in (fastest, smallest, base)]
    if base is not None:
        found += [f"{entry.name} {comparison(entry, base)}." for entry in others[:NAMED]]
    on_front = [entry.name for entry in measured if entry.name in front]
    if len(on_front) > 1:
        found.append(f"No other layout is both faster and smaller than {_listed(on_front)}.")
    elif on_front and len(measured) > 1:
        found.append(f"{on_front[0]} is both the fastest and the smallest.")
    by_run = (loss_reference(group, run) for run in dict.fromkeys(entry.run for entry in group))
    references = [entry for entry in by_run if entry is not None]
    return [*found, *failures(group), *loss_sentences(measured, references)]


def fastest_sentence(measured: Sequence[Entry], base: Entry | None) -> str:
    """The fastest row, with those that are as fast within the noise. `measured` is sorted by step time."""
    fastest = measured[0]
    equals = [entry.name for entry in measured[1:] if same_within_noise(fastest.step, entry.step)]
    rate = usable(fastest.row.tokens_per_second)
    speed = duration(fastest.step.median) + " a step" + (f", {count(rate)} tokens/s" if rate else "")
    if fastest is base:
        told = f"The baseline {fastest.name} was fastest: {speed}."
    else:
        told = f"{fastest.name} was fastest: {speed}" + (f"; it {comparison(fastest, base)}." if base else ".")
    if equals:
        told += f" {_listed(equals)} {'was' if len(equals) == 1 else 'were'} as fast within the noise."
    return told


def smallest_sentence(smallest: Entry, base: Entry | None) -> str:
    """The row with the least memory."""
    if smallest is base or base is None:
        who = "The baseline " if base is not None else ""
        return f"{who}{smallest.name} used the least memory: {binary(smallest.memory or 0.0)} on the fullest rank."
    size = binary(smallest.memory or 0.0)
    return f"{smallest.name} {comparison(smallest, base)}; with {size} on the fullest rank it used the least."


def comparison(entry: Entry, base: Entry) -> str:
    """`used 38 % of ddp4's memory and was 9 % slower`."""
    time = _time_words(entry, base)
    if entry.memory is None or base.memory is None:
        return f"{time} than {base.name}" if time.endswith("slower") else f"{time} (against {base.name})"
    return f"{_memory_words(entry.memory / base.memory, base.name)} and {time}"


def _memory_words(ratio: float, base: str) -> str:
    if abs(ratio - 1) < 0.005:
        return f"used as much memory as {base}"
    if ratio < 1:
        return f"used {_percent(ratio)} of {base}'s memory"
    return (
        f"used {ratio:.1f} times {base}'s memory"
        if ratio >= 2
        else f"used {_percent(ratio - 1)} more memory than {base}"
    )


def _time_words(entry: Entry, base: Entry) -> str:
    ratio = entry.step.median / base.step.median
    if same_within_noise(entry.step, base.step):
        return "was as fast within the noise"
    if ratio >= 2:
        return f"took {ratio:.1f} times as long"
    return f"was {_percent(ratio - 1)} slower" if ratio > 1 else f"took {_percent(1 - ratio)} less time a step"


def failures(group: Sequence[Entry]) -> list[str]:
    """The rows that were not measured, with their reasons."""
    failed = [entry for entry in group if entry.place is None]
    if not failed:
        return []
    told = [
        f"{entry.name} ({status_of(entry)}{f': {_cut(entry.row.reason)}' if entry.row.reason else ''})"
        for entry in failed[:NAMED]
    ]
    more = f"; and {len(failed) - NAMED} more, see the table" if len(failed) > NAMED else ""
    return [f"{len(failed)} of {len(group)} layouts {'was' if len(failed) == 1 else 'were'} not measured: "
            f"{'; '.join(told)}{more}."]  # fmt: skip


def status_of(entry: Entry) -> str:
    """A row's status; a row that ran to its end may lack its step time."""
    return "no step time" if entry.place is None and entry.row.status == DONE else entry.row.status


def plan_sentence(agreement: Agreement) -> str:
    """Whether the plan was right: order, regret and error over the rows that have a prediction and a measurement."""
    if agreement.spearman is None or not math.isfinite(agreement.spearman):
        order, ordered = f"{agreement.rows} rows have a prediction, too few to rank", True
    else:
        order = f"Spearman {agreement.spearman:.2f} over {agreement.rows} rows"
        ordered = agreement.spearman >= GOOD_ORDER
    right = ordered and agreement.regret <= GOOD_REGRET and agreement.median_step_error <= GOOD_ERROR
    choice = (
        "the layout that it put first was the fastest"
        if agreement.regret <= 0
        else f"taking the layout that it put first loses {_percent(agreement.regret)} of the throughput"
    )
    error = f"step times were {_percent(agreement.median_step_error)} off"
    if agreement.median_memory_error is not None:
        error += f", memory {_percent(agreement.median_memory_error)}"
    return f"The plan was {'right' if right else 'not right'}: {choice} ({order}); {error} (medians)."


def loss_sentences(measured: Sequence[Entry], references: Sequence[Entry]) -> list[str]:
    """Whether the layouts trained the same: the largest relative difference to their run's reference."""
    if not references:
        return []
    of_base = f"{references[0].name}'s" if len(references) == 1 else "that of their run's reference"
    errors = [(e.row.loss_error, e.name) for e in measured if e not in references and e.row.loss_error is not None]
    wrong = [name for error, name in errors if not math.isfinite(error)]
    off = [(error, name) for error, name in errors if math.isfinite(error) and error > SAME_TRAINING]
    found = [f"The loss of {_listed(wrong)} is not finite, or its reference's is not."] if wrong else []
    found += [
        f"The loss of {name} differs from {of_base} by up to {_percent(error)}: it did not train the same."
        for error, name in sorted(off, reverse=True)[:NAMED]
    ]
    agreeing = [(error, name) for error, name in errors if math.isfinite(error) and error <= SAME_TRAINING]
    if agreeing:
        error, name = max(agreeing)
        within = f"{of_base} within a relative {error:.1e}"
        one = len(agreeing) == 1
        found.append(f"The loss of {name} follows {within}." if one else
                     f"The losses of {len(agreeing)} layouts follow {within} ({name}).")  # fmt: skip
    return found


def _percent(share: float) -> str:
    """`38 %`; one decimal below 10 %, so that 0.4 % is not 0 %."""
    value = share * 100
    return f"{value:.0f} %" if abs(value) >= 10 else f"{value:.1f}".removesuffix(".0") + " %"


def _listed(names: Sequence[str]) -> str:
    shown = list(names[:NAMED])
    if len(names) > NAMED:
        return f"{', '.join(shown)} and {len(names) - NAMED} more"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _cut(text: str) -> str:
    line = printable(text)
    return line if len(line) <= REASON else line[: REASON - 1] + "…"
