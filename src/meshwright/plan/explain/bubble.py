"""The bubble, and the schedules that make it smaller."""

from __future__ import annotations

from meshwright.cost.pipeline import bubble_fraction, in_flight
from meshwright.cost.schedules import takes
from meshwright.plan.explain.common import check_schedule
from meshwright.plan.explain.inputs import Inputs
from meshwright.plan.explain.page import Page, account, table
from meshwright.spec.layout import MULTI_STAGE_SCHEDULES, SCHEDULES
from meshwright.spec.units import percent

IDEAS = {
    "gpipe": "all forwards, then all backwards",
    "1f1b": "a backward as soon as there is one",
    "interleaved1f1b": "1f1b with several stages a rank",
    "loopedbfs": "gpipe with several stages a rank",
    "interleavedzerobubble": "weight gradients put off into the gaps",
    "zbvzerobubble": "the same, stages placed as a V",
    "dualpipev": "two directions at once on a V",
}

PYTORCH_REFUSES = "; PyTorch refuses fewer micro-batches than ranks"


def page(topic: str, given: Inputs) -> Page:
    """The account of the bubble of one schedule, or of all seven."""
    return _schedules(topic, given) if topic == "schedules" else _bubble(topic, given)


def _bubble(topic: str, given: Inputs) -> Page:
    p, m, v = given.stages, given.micro_batches, given.virtual_stages
    refusal = check_schedule(given)
    code = SCHEDULES.index(given.schedule)
    bubble = float(bubble_fraction(code, p, m, v))
    counts = sorted({p * k for k in (1, 2, 4, 8, 16)} | {m})
    legal = [n for n in counts if p == 1 or given.schedule == "1f1b" or takes(given.schedule, p, n)]
    rows = [(f"{n}", percent(float(bubble_fraction(code, p, n, v)))) for n in legal]
    return account(
        topic,
        "The bubble of a pipeline",
        what="The share of time that pipeline ranks wait: the last rank for the first micro-batch to arrive, the first "
        "rank for the last one to come back.",
        formula=("(p-1) / (m + p-1) for p ranks and m micro-batches", "with v stages a rank: (p-1) / (v m + p-1)"),
        steps=(
            f"p = {p}, m = {m}, {given.schedule}, v = {v}: {percent(bubble)} idle",
            f"the step takes {1 / (1 - bubble):.2f} times what it would without",
            *([refusal] if refusal else []),
        ),
        shown=table((">micro-batches", ">bubble"), rows),
        sent="Nothing: it is waiting. Uneven stages and slow sends make it larger than this.",
        use="Reckon with it before choosing a pipeline. Raise m (a larger batch, or smaller micro-batches), or take a "
        "schedule with several stages a rank or with split backward.",
        avoid="m below p: half of the time is lost, or more.",
        sources=("Huang et al. 2018, arXiv:1811.06965 section 2.3", "Narayanan et al. 2021, arXiv:2104.04473"),
        numbers={"stages": p, "micro_batches": m, "virtual_stages": v, "schedule": given.schedule, "bubble": bubble},
    )


def _schedules(topic: str, given: Inputs) -> Page:
    p, m = given.stages, given.micro_batches
    rows, numbers = [], {}
    for code, name in enumerate(SCHEDULES):
        v = 2 if name in MULTI_STAGE_SCHEDULES else 1
        refused = p > 1 and not takes(name, p, m)
        if refused and name != "1f1b":
            rows.append((name, f"{v}", "refused", "", IDEAS[name]))
            continue
        bubble = float(bubble_fraction(code, p, m, v))
        held = [float(in_flight(code, p, m, v, rank)) for rank in (0, p - 1)]
        numbers[name] = {"virtual_stages": v, "bubble": bubble, "in_flight": {"first": held[0], "last": held[1]}}
        rows.append(
            (
                name,
                f"{v}",
                percent(bubble),
                f"{held[0]:g} / {held[1]:g}",
                IDEAS[name] + (PYTORCH_REFUSES if refused else ""),
            )
        )
    return account(
        topic,
        "Pipeline schedules, by PyTorch's names",
        what="The order in which a rank runs forwards and backwards decides how long it waits and how many "
        "micro-batches' activations it holds.",
        formula=(
            "gpipe, 1f1b: (p-1)/(m+p-1)      interleaved1f1b, loopedbfs: (p-1)/(v m+p-1)",
            "interleavedzerobubble, zbvzerobubble, forward = input = weight gradient: (p-1)/(3 v m+p-1)",
        ),
        steps=(
            f"p = {p} ranks, m = {m} micro-batches; forward, input gradient and weight gradient take equally long",
            "activations: micro-batches held by the first / last rank, in units of all the rank's layers",
        ),
        shown=table(("schedule", ">stages a rank", ">bubble", ">activations", "idea"), rows),
        sent="Several stages a rank send as many times more activations.",
        saved="1f1b holds p micro-batches on the first rank where gpipe holds m.",
        use="1f1b to begin with; interleaved1f1b when m is small against p and m is a multiple of p; the zero-bubble "
        "ones when backward can be split and is not recomputed.",
        avoid="gpipe and loopedbfs with many micro-batches: they hold them all.",
        sources=(
            "Narayanan et al. 2019, arXiv:1806.03377; 2021, arXiv:2104.04473",
            "Lamy-Poirier 2022, arXiv:2211.05953",
            "Qi et al. 2023, arXiv:2401.10241; DeepSeek-V3, arXiv:2412.19437",
        ),
        numbers={"stages": p, "micro_batches": m, "schedules": numbers},
    )
