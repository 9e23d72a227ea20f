"""A model that the package did not write computes under every layout what one process computes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

FILE = Path(__file__).parents[2] / "examples" / "own_module.py"
COUNT, SEQUENCES = 4, 2
LAYOUTS = (
    "ddp2",
    "zero2:2",
    "fsdp2",
    "tp2",
    "tp2:nosp",
    "pp2:1f1b",
    "pp2:interleaved1f1b:2",
    "pp2:zbvzerobubble",
    "fsdp2 tp2",
)


def _example() -> Any:
    spec = importlib.util.spec_from_file_location("own_module", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _gradients(text: str) -> list[tuple[str, tuple[int, ...], tuple[int, ...], torch.Tensor]]:
    """This rank's boxes of the gradients after one step: name, offset, size, numbers."""
    from meshwright.modes.mesh import make_mesh
    from meshwright.modes.parallelize import parallelize
    from meshwright.spec import parse_layout

    example = _example()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    layout = parse_layout(text)
    mesh = make_mesh(layout)
    parallel = parallelize(example.MyModel(), mesh, recipe=example.RECIPE)
    own = example.batches(0, COUNT, SEQUENCES, mesh.index("data"))
    example.forward_backward(parallel, own, COUNT * SEQUENCES * example.SEQ * layout.data)
    return [(p.name, p.offset, p.size, p.gradient.clone()) for p in parallel.parts if p.gradient is not None]


def _one_process(data: int) -> dict[str, torch.Tensor]:
    """Plain PyTorch: the same model on all data ranks' sequences at once."""
    example = _example()
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        torch.manual_seed(0)
        model = example.MyModel()
    finally:
        torch.set_default_dtype(before)
    tokens = torch.cat([t for rank in range(data) for t in example.batches(0, COUNT, SEQUENCES, rank)])
    F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("text", LAYOUTS)
def test_a_foreign_module_has_the_gradients_of_one_process(ranks: Any, text: str) -> None:
    from meshwright.spec import parse_layout

    layout = parse_layout(text)
    expected = _one_process(layout.data)
    seen = {name: torch.zeros_like(g, dtype=torch.bool) for name, g in expected.items()}
    for boxes in ranks.run(_gradients, text, world=layout.devices):
        for name, offset, size, gradient in boxes:
            box = tuple(slice(o, o + n) for o, n in zip(offset, size, strict=True))
            seen[name][box] = True
            scale = expected[name].abs().max().clamp(min=1e-6)
            assert (gradient - expected[name][box]).abs().max() <= 1e-11 * scale if gradient.numel() else True, name
    assert all(bool(whole.all()) for whole in seen.values())
