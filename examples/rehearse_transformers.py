"""A Hugging Face model rehearsed under FSDP: memory of a rank and what it sends, with no GPU and no weights.

    python examples/rehearse_transformers.py "fsdp8" 8xH100
    python examples/rehearse_transformers.py "hsdp2x8" 2x8xH100

Needs `pip install transformers`. The model is Llama-3-8B's shape; `RECIPE` is all that the modes have to be told.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from meshwright.modes.gradients import complete_gradients, end_step, micro_batch
from meshwright.modes.options import Options
from meshwright.modes.parallelize import Parallel
from meshwright.modes.recipe import Recipe
from meshwright.rehearse.own import rehearse
from meshwright.spec.units import binary
from meshwright.train.optim.config import OptimConfig
from meshwright.train.optim.optimizer import make_optimizer

SEQ = 4096
RECIPE = Recipe(
    order=("model.embed_tokens", "model.layers.*", "model.norm", "lm_head"), blocks="model.layers.*", draws=False
)


def build() -> nn.Module:
    """Llama-3-8B as transformers has it."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
            num_attention_heads=32, num_key_value_heads=8, use_cache=False,
        )
    )  # fmt: skip


def step(parallel: Parallel) -> Callable[[], None]:
    """One step of AdamW on one sequence a rank."""
    optimizer = make_optimizer(parallel.parts, OptimConfig())

    def once() -> None:
        tokens = torch.zeros(1, SEQ, dtype=torch.int64)
        with micro_batch(parallel, last=True):
            logits = parallel.runners[0](input_ids=tokens).logits
            F.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten(), reduction="sum").backward()
        complete_gradients(parallel)
        optimizer.step()
        optimizer.zero_grad()
        end_step(parallel)

    return once


def main() -> None:
    layout, cluster = (sys.argv[1:] + ["fsdp8", "8xH100"][len(sys.argv) - 1 :])[:2]
    precision = Options(dtype=torch.bfloat16, reduce_dtype=torch.float32)
    found = rehearse(build, step, layout, cluster, recipe=RECIPE, options=precision)
    print(f"{layout} on {cluster}: rank {found.rank} needs {binary(found.peak_bytes)} at {found.peak}")
    for part, size in found.parts.items():
        print(f"  {part:<14} {binary(size)}")
    for row in found.traffic:
        print(f"  {row.axis} {row.collective}: {row.count} a step, {binary(row.bytes)} sent")


if __name__ == "__main__":
    main()
