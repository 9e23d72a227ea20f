"""Data that ranks or epochs have twice: losses that are the same to the last digit.

PyTorch #31771 (no set_epoch), Lightning PR #1734 (an iterable dataset is not sharded by itself).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from meshwright.diagnose.configuration.settings import folder
from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import INFO, POSSIBLE, WARNING, Finding
from meshwright.diagnose.metrics.pairs import job_of
from meshwright.diagnose.metrics.series import Run, runs

STEPS = 3
DIGITS = 4
"""Significant digits that a loss must have: coarser ones agree by chance."""
IN_EPOCH = 5


def same_on_all_ranks(facts: Facts) -> Iterator[Finding]:
    """Ranks that print their own losses, and all the same. A reduced loss is the same everywhere in a healthy job."""
    groups: dict[str, dict[int, Run]] = {}
    for run in runs(facts):
        if run.rank is not None and run.counted:
            groups.setdefault(folder(run.path), {}).setdefault(run.rank, run)
    for ranks in groups.values():
        if len(ranks) < 2:
            continue
        job = job_of(facts, next(iter(ranks.values())).path)
        if job.data_ranks == 1 or (job.world and len(ranks) <= job.model_ranks):
            continue
        losses = [run.by_step("loss") for run in ranks.values()]
        steps = sorted(set.intersection(*(set(one) for one in losses)))
        same = [step for step in steps if len({one[step] for one in losses}) == 1 and _is_fine(losses[0][step])]
        if len(same) < STEPS or len(same) < len(steps):
            continue
        # A line that also has a gradient norm is a framework's, which prints the mean over ranks.
        own = not any("grad_norm" in run.points[0].values for run in ranks.values())
        yield Finding(
            "data_sharding", WARNING if own else INFO, POSSIBLE, tuple(sorted(ranks)) if own else (),
            f"The losses of {len(ranks)} ranks are the same to the last digit at {len(same)} steps: every rank reads "
            f"the "
            "same data, or what is printed is their mean.",
            tuple(run.evidence(run.points[0]) for _, run in sorted(ranks.items())[:4]),
            "Print a hash of the batch on every rank.",
            ("Shard the data by rank: DistributedSampler, or split_dataset_by_node for an iterable dataset.",),
        )  # fmt: skip


def _is_fine(value: float) -> bool:
    return len(repr(abs(value)).replace(".", "").lstrip("0").split("e")[0]) >= DIGITS


def same_every_epoch(facts: Facts) -> Iterator[Finding]:
    """Epochs with the same losses in the same order."""
    for run in runs(facts):
        epochs: dict[int, list[float]] = {}
        for point in run.points:
            epoch, loss = point.values.get("epoch", -1.0), point.values.get("loss")
            if loss is not None and 0 <= epoch < 1e6 and epoch == int(epoch):
                epochs.setdefault(int(epoch), []).append(loss)
        ordered = [epochs[one] for one in sorted(epochs)]
        for before, after in pairwise(ordered):
            if len(before) >= IN_EPOCH and before == after and len(set(before)) > IN_EPOCH // 2:
                yield Finding(
                    "data_sharding", WARNING, POSSIBLE, (),
                    f"Two epochs have the same {len(before)} losses in the same order: the data are not shuffled "
                    f"anew, and "
                    "nothing is learned in between.",
                    (run.evidence(run.points[0]),), "Print the indices of the first batch of each epoch.",
                    ("Call sampler.set_epoch(epoch) at the start of every epoch, and see that the optimizer steps.",),
                )  # fmt: skip
                break
