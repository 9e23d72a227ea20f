"""Training written by hand: transformers' Llama, torch.optim, one process."""

from __future__ import annotations

import math
from pathlib import Path

import torch
import transformers

from meshwright.train.data.config import DataConfig
from meshwright.train.data.dataset import open_dataset
from meshwright.train.data.loader import Loader

STEPS, BATCH, LENGTH, LR, WEIGHT_DECAY = 6, 8, 32, 1e-3, 0.1
FLAGS = {"train__steps": STEPS, "train__global_batch": BATCH, "train__seq_len": LENGTH, "optimizer__lr": LR}


def small_llama(folder: Path) -> Path:
    """A random model of four layers as transformers saves it."""
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=64,
        vocab_size=264,
        max_position_embeddings=64,
        tie_word_embeddings=False,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def trained(folder: Path) -> tuple[list[float], list[float], transformers.PreTrainedModel]:
    """Losses, gradient norms and the model after STEPS steps from the weights in `folder`.

    The batches are the loader's for one rank, which is tested by itself.
    """
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    decayed = [p for name, p in model.named_parameters() if p.dim() > 1]
    others = [p for name, p in model.named_parameters() if p.dim() == 1]
    groups = [{"params": decayed, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.95), eps=1e-8)
    loader = Loader(open_dataset(DataConfig(source="synthetic:chain", seq_len=LENGTH), vocab=264), BATCH, prefetch=0)
    curve, norms = [], []
    for step in range(STEPS):
        (batch,) = next(loader)
        logits = model(input_ids=batch.tokens).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)))
        for group in optimizer.param_groups:
            group["lr"] = LR * (1 + math.cos(math.pi * step / STEPS)) / 2
        optimizer.step()
        optimizer.zero_grad()
        curve.append(float(loss.detach()))
    return curve, norms, model
