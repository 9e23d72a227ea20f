"""The batch equation: global batch = micro-batch × accumulation × data-parallel ranks.

Checked by DeepSpeed (runtime/config.py: _batch_assertion) and Megatron-LM (num_microbatches_calculator.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from meshwright.diagnose.configuration.legal import listed, neighbours
from meshwright.diagnose.configuration.refusals import Refusal
from meshwright.diagnose.configuration.settings import Job
from meshwright.diagnose.finding import CERTAIN, ERROR, LIKELY, POSSIBLE, Finding


def batch(job: Job) -> Iterator[Finding]:
    """From a configuration: the global batch is a multiple of micro-batch × data-parallel ranks."""
    total, micro, dp = job.number("global_batch"), job.number("micro"), job.data_ranks
    accumulation = job.number("accumulation")
    if total and micro and accumulation and not dp and total % (micro * accumulation):
        yield Finding(
            "batch_config", ERROR, CERTAIN if _is_certain(job) else LIKELY, (),
            f"A global batch of {total} is no multiple of {micro} × {accumulation} (micro-batch × accumulation): no "
            "number of data-parallel ranks fits.",
            job.evidence("global_batch", "micro", "accumulation"),
            change=(
                f"Take a global batch of {listed(neighbours(total, micro * accumulation))}.",
                "Or leave out one of the three, and the framework computes it.",
            ), weight=2,
        )  # fmt: skip
    if not (total and micro and dp) or job.number("ulysses") > 1:
        return
    unit = micro * dp * (accumulation or 1)
    if (accumulation and total != unit) or total % unit:
        equation = f"{micro} × {accumulation} × {dp}" if accumulation else f"a multiple of {micro} × {dp}"
        yield Finding(
            "batch_config", ERROR, CERTAIN if _is_certain(job) else LIKELY, (),
            f"A global batch of {total} is not {equation} (micro-batch{' × accumulation' * bool(accumulation)} × "
            "data-parallel ranks).",
            job.evidence("global_batch", "micro", "accumulation", "world", "nproc", "nodes", "dp"),
            change=_choices(total, micro, accumulation, dp), weight=2,
        )  # fmt: skip


def _is_certain(job: Job) -> bool:
    return job.is_told("global_batch", "micro", "accumulation", "world", "tp", "pp", "cp", "dp")


def _choices(total: int, micro: int, accumulation: int, dp: int) -> tuple[str, ...]:
    """What would fit, the least change first; each list has the nearest value first."""
    unit = micro * dp
    near = neighbours(total, unit)
    as_is = f", or {unit * accumulation} with the accumulation of {accumulation}" if accumulation else ""
    said = [
        f"Take a global batch of {listed(near)} (a multiple of {micro} × {dp} = {unit})"
        f"{as_is if unit * accumulation not in near else ''}."
    ]
    ranks = [one for one in range(max(dp - 8, 1), dp + 9) if one != dp and total % (micro * one) == 0]
    if ranks:
        # At the same distance the number that leaves the accumulation as it is comes first.
        ranks.sort(key=lambda one: (abs(one - dp), total != micro * one * accumulation, one))
        fits = " or ".join(f"{one} (accumulation {total // (micro * one)})" for one in ranks[:3])
        said.append(f"Or keep {total} and use {fits} data-parallel ranks.")
    micros = [one for one in range(1, min(total // dp, 4096) + 1) if total % (one * dp) == 0]
    if micros:
        micros.sort(key=lambda one: abs(one - micro))
        fits = " or ".join(f"{one} (accumulation {total // one // dp})" for one in micros[:3])
        said.append(f"Or keep {total} and take a micro-batch of {fits}.")
    elif accumulation:
        said.append("Or leave out one of the three, and the framework computes it.")
    return tuple(said)


def refused_product(refusal: Refusal, launched: int) -> Iterator[Finding]:
    """`train != micro * accumulation * world`: which of them is wrong. `launched` is the ranks that were started."""
    if refusal.kind != "batch_product" or min(refusal.factors) < 1:
        return
    micro, accumulation, seen = refusal.factors
    each = micro * accumulation
    fitting = refusal.number // each if refusal.number % each == 0 else 0
    if fitting and fitting != seen and (launched in (fitting, fitting * _share(launched, fitting)) or seen == 1):
        yield _wrong_world(refusal, fitting, seen, launched)
        if launched == fitting:
            return
    yield Finding(
        "batch_config", ERROR, CERTAIN if not fitting else LIKELY, (),
        f"The batch equation does not hold: {refusal.number} is not {micro} × {accumulation} × {seen} = {each * seen} "
        "(micro-batch × accumulation × data-parallel ranks)"
        + ("." if fitting else f", and {refusal.number} is no multiple of {each} for any number of ranks."),
        (refusal.evidence,), change=_choices(refusal.number, micro, accumulation, seen), when=refusal.when, weight=2,
    )  # fmt: skip


def _share(launched: int, fitting: int) -> int:
    """Model-parallel ranks for each data-parallel one, if `launched` were right; 0: it is no multiple."""
    return launched // fitting if launched and launched % fitting == 0 else 0


def _wrong_world(refusal: Refusal, fitting: int, seen: int, launched: int) -> Finding:
    by = f", and {launched} were launched" if launched else ""
    return Finding(
        "batch_config", ERROR, CERTAIN if launched == fitting else LIKELY if seen == 1 else POSSIBLE, (),
        "The batch equation does not hold, since the framework "
        f"sees a data-parallel world of {seen}; the batch sizes hold with {fitting}{by}.",
        (refusal.evidence,), "Print torch.distributed.get_world_size() where the configuration is read.",
        (
            "Start the job with its launcher (torchrun, deepspeed, accelerate launch), and create the process group "
            "before the configuration is checked.",
            "See that WORLD_SIZE, the host file and the tensor or pipeline degrees are those of the launch.",
        ), refusal.when, weight=3 if launched == fitting else 2,
    )  # fmt: skip
