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


COMPLETE = {
    "llama": "ddp2, zero1:2, zero2:2, fsdp2, hsdp2x2, tp2, tp4, tp2:nosp ac:selective, ddp2 cp2:ring, fsdp2 tp2, "
    "pp2:gpipe, pp2:1f1b, pp2:zbvzerobubble, tp2 pp2:interleaved1f1b:2, ddp2 pp2:loopedbfs:2, "
    "cp2:ulysses pp2:interleavedzerobubble:2, cp2:allgather pp2:dualpipev, fsdp2 pp2:zbvzerobubble, "
    "tp2 pp2:zbvzerobubble ac:full, fsdp2 offload:optimizer+parameters",
    "mixtral": "ddp2 ep2, tp2, tp2:nosp, cp2:ring ep2, fsdp4 ep2, fsdp2 tp2 ep4, tp2 pp2:zbvzerobubble ep2",
    "tied": "pp2:1f1b, pp4:1f1b, pp2:dualpipev, fsdp2 pp2:1f1b",
    "gpt2": "tp2, tp2:nosp, fsdp2 cp2:ring, tp2 pp2:1f1b",
    "qwen3": "tp4, fsdp2 tp2",
    "qwen2-moe": "fsdp2 tp2 ep2, tp2:nosp, ddp2 pp2:1f1b ep2",
    "deepseek": "fsdp2, tp2, tp2:nosp, ddp2 ep2, cp2:ring, cp2:ulysses ep2, cp2:allgather ac:selective, pp2:1f1b, "
    "fsdp2 tp2 ep4 ac:full, tp2 pp2:zbvzerobubble ep2",
    "deepseek-v2": "tp2:nosp, fsdp2 tp2, tp2 cp2:ring",
}
"""By model: every mode and every schedule, each in few layouts of at most 4 ranks."""


def nano(model: str, **changes: object) -> Case:
    """llama: 4 layers, 2 of 4 heads are keys' and values', a vocabulary of 67. mixtral: the same with 4 experts.
    tied: 6 layers, one table for embedding and head. gpt2: biases, learned positions, tied. qwen3: a head of keys and
    values, norms of heads, tied. qwen2-moe: a dense layer, and experts beside a shared one.
    deepseek: latent attention with queries from a latent too, a dense layer, groups of experts.
    deepseek-v2: plain queries, values of the queries' width."""
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
