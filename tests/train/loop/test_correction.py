"""The correction of a DeepSeek router is no parameter; it goes through training and checkpoints as it was loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from meshwright.train.launch.pool import RankPool
from meshwright.train.models.build import build_model
from meshwright.train.models.init import init_module
from meshwright.train.models.safetensors_write import save_decoder

from .runs import losses, run


def test_what_was_loaded_is_used_saved_resumed_and_exported(ranks: RankPool, tmp_path: Path) -> None:
    model = build_model("tiny-deepseek", device="cpu")
    init_module(model, 0)
    for i, buffer in enumerate(model.buffers()):
        buffer.copy_(torch.randn(buffer.shape, generator=torch.Generator().manual_seed(i)))
    save_decoder(tmp_path / "start", model)
    flags = {"model": "tiny-deepseek", "checkpoint__load": str(tmp_path / "start")}
    whole = run(ranks, tmp_path / "whole", "fsdp2 tp2 ep4 mbs2", **flags)
    run(ranks, tmp_path / "cut", "fsdp2 tp2 ep4 mbs2", **flags, stop_after=2)
    exported = tmp_path / "exported"
    cut = run(ranks, tmp_path / "cut", "ddp2 pp2:1f1b mbs2", **flags, checkpoint__export=exported)
    assert losses(cut) == pytest.approx(losses(whole), rel=2e-6)
    before, after = (load_file(folder / "model.safetensors") for folder in (tmp_path / "start", exported))
    names = [name for name in before if name.endswith("e_score_correction_bias")]
    assert len(names) == 3
    assert all(torch.equal(before[name], after[name]) for name in names)
    assert not torch.equal(before["lm_head.weight"], after["lm_head.weight"])
