"""The smallest work that shows what a layout computes: models of a few thousand parameters, two steps."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from meshwright.check.case import Case
from meshwright.check.result import CheckResult
from meshwright.check.sweep import Sweep
from meshwright.spec.notation import parse_layouts
from meshwright.train.launch.pool import RankPool

MODELS = Path(__file__).parent / "models"


def nano(model: str, **changes: object) -> Case:
    """llama: 4 layers, 2 of 4 heads are keys' and values', a vocabulary of 67. mixtral: the same with 4 experts.
    tied: 6 layers, one table for embedding and head."""
    case = Case(str(MODELS / f"nano-{model}.json"), seq_len=16, global_batch=8, steps=2)
    return replace(case, **changes)  # type: ignore[arg-type]


def checked(
    pool: RankPool, case: Case, layouts: str, prepare: Callable[[], AbstractContextManager[None]] | None = None
) -> CheckResult:
    """What `check` says of the comma-separated layouts."""
    with Sweep(case, parse_layouts(layouts), pool=pool, prepare=prepare) as sweep:
        return sweep.run()


def failures(result: CheckResult) -> list[str]:
    """The layouts that did not pass, with what is said of them."""
    return [f"{one.layout}: {one.explanation}" for one in result.layouts if not one.passed]
