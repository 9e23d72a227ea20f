"""Rules that tie the workload to the model, the device and the layout: precision, positions, tuning, recomputation."""

from __future__ import annotations

from typing import Any

from meshwright.spec.columns import LayoutColumns
from meshwright.spec.layout import Layout
from meshwright.spec.rules.rule import Job, Note, Refusal, Rule, divisors, legal_degrees

FP8_MULTIPLE = 16
"""Both sides of an fp8 weight (Transformer Engine: products with dimensions divisible by 16)."""


def _explain_precision(job: Job, layout: Layout) -> Refusal:
    legal = [p for p in ("bf16", "fp16", "fp32", "fp8") if p in job.cluster.device.peak_flops]
    return f"{job.cluster.device.name} has no {job.workload.precision} arithmetic.", legal


def _odd_for_fp8(job: Job, c: LayoutColumns) -> Any:
    if job.workload.precision != "fp8":
        return False
    model = job.model
    ffn = model.ffn_hidden if model.moe_layers < model.layers else 0
    misfit: Any = (model.hidden % FP8_MULTIPLE != 0) | (c.tensor < 0)
    for width in (ffn, model.heads * model.head_dim):
        misfit = misfit | (width % (FP8_MULTIPLE * c.tensor) != 0)
    # Kept whole by several ranks where there are fewer heads than ranks.
    return misfit | (model.head_dim % FP8_MULTIPLE != 0)


def _explain_fp8(job: Job, layout: Layout) -> Refusal:
    model = job.model
    text = (
        f"fp8 products need widths that are multiples of {FP8_MULTIPLE} on each of {layout.tensor} tensor ranks: "
        f"hidden {model.hidden}, feed-forward {model.ffn_hidden}, heads {model.heads} × {model.head_dim}."
    )
    rule = next(rule for rule in RULES if rule.broken is _odd_for_fp8)
    degrees = legal_degrees([rule], job, layout, "tensor", divisors(model.heads))
    return text, [*(f"tp{degree}" for degree in degrees), "bf16"]


def _explain_frozen(job: Job, layout: Layout) -> Refusal:
    text = f"{job.workload.tuning.frozen_layers} frozen layers of {job.model.layers} leave none to learn."
    return text, (f"0 to {job.model.layers - 1}",)


TUNING_RULES: tuple[Rule, ...] = (
    Rule(
        "every layer is frozen",
        lambda job, c: job.workload.tuning.frozen >= job.model.layers,
        _explain_frozen,
    ),
    Rule(
        "LoRA wider than the model",
        lambda job, c: job.workload.tuning.kind == "lora" and job.workload.tuning.lora_rank > job.model.hidden,
        lambda job, layout: (
            f"LoRA of rank {job.workload.tuning.lora_rank} is wider than the {job.model.hidden} of {job.model.name}.",
            (f"rank 1 to {job.model.hidden}",),
        ),
    ),
    Rule(
        "LoRA on a gate that the model does not have",
        lambda job, c: (
            job.workload.tuning.kind == "lora"
            and "gate" in job.workload.tuning.lora_targets
            and not job.model.gated_mlp
        ),
        lambda job, layout: (f"{job.model.name} has no gate projection for LoRA.", ("q", "k", "v", "o", "up", "down")),
    ),
)
"""What the model has to have for its tuning, whatever the layout."""

RULES: tuple[Rule, ...] = (
    Rule(
        "the device has no arithmetic of this precision",
        lambda job, c: job.workload.precision not in job.cluster.device.peak_flops,
        _explain_precision,
    ),
    Rule("widths on a rank are not multiples of 16, which fp8 needs", _odd_for_fp8, _explain_fp8),
    Rule(
        "the sequence is longer than the learned position table",
        lambda job, c: job.model.positions == "learned" and 0 < job.model.position_rows < job.workload.seq_len,
        lambda job, layout: (
            f"{job.model.name} has learned positions for {job.model.position_rows} tokens, not {job.workload.seq_len}.",
            (f"sequence length {job.model.position_rows}",),
        ),
    ),
    *TUNING_RULES,
)


def _beyond_positions(job: Job, layout: Layout) -> str | None:
    if job.model.positions == "learned" or job.workload.seq_len <= job.model.max_positions:
        return None
    return (
        f"Sequences of {job.workload.seq_len} tokens exceed the {job.model.max_positions} positions that "
        f"{job.model.name} was configured for; Megatron's argument check refuses."
    )


NOTES: tuple[Note, ...] = (_beyond_positions,)
