"""Published runs made by hand for tests: a small GPT on A100s, unless said otherwise."""

from __future__ import annotations

from meshwright.plan.pricing import PricedRun
from meshwright.plan.published import PublishedRun
from meshwright.plan.run_nouns import nouns_of_run
from meshwright.spec.units import GIB

ROW = {
    "source": "by-hand", "model_name": "GPT", "layers": "24", "hidden": "2048", "heads": "16", "vocab": "51200",
    "seq_len": "2048", "gpu": "A100-80GB", "gpus": "8", "gpus_per_node": "8", "precision": "bf16",
    "framework": "nanotron", "dp": "8", "tp": "1", "pp": "1", "microbatch": "1", "global_batch": "64",
    "recompute": "none", "recompute_known": "y", "time_ok": "y", "role": "fit", "step_time_s": "1.0",
}  # fmt: skip


def made_run(name: str, **cells: object) -> PublishedRun:
    """A run with these cells in place of the usual ones."""
    return PublishedRun(1, {"id": name, **ROW, **{column: str(cell) for column, cell in cells.items()}})


def priced_run(name: str, seconds: float, gib: float = 10.0, verdict: str = "fits", **cells: object) -> PricedRun:
    """A run with a price that is given, not computed."""
    run = made_run(name, **cells)
    return PricedRun(run, nouns_of_run(run), seconds, gib * GIB, verdict)
