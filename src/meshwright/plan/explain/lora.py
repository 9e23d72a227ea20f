"""LoRA: what frozen weights save."""

from __future__ import annotations

from dataclasses import replace

from meshwright.cost.parameters import lora_parameters, parameters
from meshwright.cost.shares import learning_share
from meshwright.plan.explain.common import states_on_rank, zero_layout
from meshwright.plan.explain.inputs import Inputs
from meshwright.plan.explain.page import Page, account, table
from meshwright.spec.units import count, gib, percent
from meshwright.spec.workload import Tuning


def page(topic: str, given: Inputs) -> Page:
    """The account of low-rank adapters beside frozen weights."""
    total = parameters(given.model).total
    layout = zero_layout(given.zero, given.ranks)
    whole = replace(given, parameters=float(total))
    tuning = Tuning("lora", lora_rank=given.lora_rank)
    trained = lora_parameters(given.model, given.lora_rank, tuning.lora_targets)
    share = learning_share(given.model, tuning)
    full, lora = states_on_rank(whole, layout), states_on_rank(whole, layout, share)
    rows = []
    for rank in sorted({4, 8, 16, 32, 64, 128, given.lora_rank}):
        learning = learning_share(given.model, Tuning("lora", lora_rank=rank))
        adapters = lora_parameters(given.model, rank, tuning.lora_targets)
        rows.append((f"{rank}", count(adapters), percent(learning), gib(sum(states_on_rank(whole, layout, learning)))))
    return account(
        topic,
        "LoRA: low-rank adapters",
        what=f"The weights are frozen. Beside each of the projections {', '.join(tuning.lora_targets)} two small "
        "matrices of rank r learn; their product is added to the frozen one.",
        formula=(
            "adapter parameters = r x (inputs + outputs) for each projection",
            "states = parameters x parameter bytes + adapters x (gradient + master + moment bytes)",
        ),
        steps=(
            f"{count(total)} frozen parameters, r = {given.lora_rank}: {trained:,} learn ({percent(share)})",
            f"full fine-tuning: {gib(sum(full))} of states a rank (ZeRO stage {given.zero}, {given.ranks} ranks)",
            f"LoRA: {gib(sum(lora))}, of which {gib(lora[0])} are the frozen weights",
        ),
        shown=table((">r", ">adapters", ">of all", ">states a rank"), rows),
        sent="Gradients of the adapters only: next to nothing with DDP. FSDP still gathers the frozen weights.",
        saved="Gradients and optimizer states of the frozen weights. Activations stay: gradients still flow through.",
        use="Fine-tuning on few devices.",
        avoid="Pre-training, or when what must be learnt is far from what the model knows.",
        sources=("Hu et al. 2021, arXiv:2106.09685",),
        numbers={
            "parameters": total,
            "adapter_parameters": trained,
            "learning_share": share,
            "state_bytes_per_rank": {"full": sum(full), "lora": sum(lora)},
        },
    )
