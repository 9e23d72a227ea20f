"""transformers' own Llama, told to the modes by a table of its names, has the gradients of one process."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, SEQ, SEQUENCES, COUNT = 96, 16, 2, 2


class Llama(nn.Module):
    """Gives logits and not an object of them, so that a stage of a pipeline can send what it computes."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import LlamaConfig, LlamaForCausalLM

        config = LlamaConfig(
            vocab_size=VOCAB, hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4,
            num_key_value_heads=2, use_cache=False, attn_implementation="sdpa",
        )  # fmt: skip
        self.llama = LlamaForCausalLM(config)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.llama(x).logits


def _recipe() -> Any:
    from meshwright.modes.recipe import Recipe

    layer = "llama.model.layers.*"
    return Recipe(
        order=("llama.model.embed_tokens", layer, "llama.model.norm", "llama.lm_head"),
        blocks=layer,
        tensor={
            "llama.model.embed_tokens": "embedding",
            f"{layer}.self_attn": "enter",
            **{f"{layer}.self_attn.{name}": "column" for name in ("q_proj", "k_proj", "v_proj")},
            f"{layer}.self_attn.o_proj": "row",
            f"{layer}.mlp": "enter",
            f"{layer}.mlp.gate_proj": "column",
            f"{layer}.mlp.up_proj": "column",
            f"{layer}.mlp.down_proj": "row",
            "llama.lm_head": "head",
        },
        sequence_dim=1,
    )


def _model() -> Llama:
    torch.manual_seed(0)
    return Llama().double()


def _tokens(data_rank: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(data_rank)
    return list(torch.randint(VOCAB, (COUNT * SEQUENCES, SEQ + 1), generator=generator).split(SEQUENCES))


def _gradients(text: str) -> list[tuple[str, tuple[int, ...], tuple[int, ...], torch.Tensor]]:
    from meshwright.modes.gradients import complete_gradients, micro_batch
    from meshwright.modes.mesh import make_mesh
    from meshwright.modes.parallelize import parallelize
    from meshwright.modes.pipeline import make_schedule
    from meshwright.modes.vocabulary import cross_entropy_sum
    from meshwright.spec import parse_layout

    layout = parse_layout(text)
    mesh = make_mesh(layout)
    parallel = parallelize(_model(), mesh, recipe=_recipe())
    targets = COUNT * SEQUENCES * SEQ * layout.data

    def loss_of(logits: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return cross_entropy_sum(logits.flatten(0, 1), wanted.flatten(), mesh.group("tensor"), VOCAB) / targets

    own = _tokens(mesh.index("data"))
    if layout.stages > 1:
        schedule = make_schedule(parallel.stages, parallel.indices, mesh, COUNT, loss_of)
        joined = torch.cat(own)
        inputs = (joined[:, :-1],) if 0 in parallel.indices else ()
        schedule.step(*inputs, target=joined[:, 1:], losses=[], return_outputs=False)
    else:
        for i, tokens in enumerate(own):
            with micro_batch(parallel, last=i == COUNT - 1):
                loss_of(parallel.runners[0](tokens[:, :-1]), tokens[:, 1:]).backward()
    complete_gradients(parallel)
    return [(p.name, p.offset, p.size, p.gradient.clone()) for p in parallel.parts if p.gradient is not None]


@pytest.mark.parametrize("text", ["ddp2", "fsdp2", "tp2:nosp", "pp2:1f1b", "fsdp2 tp2:nosp"])
def test_transformers_llama_has_the_gradients_of_one_process(ranks: Any, text: str) -> None:
    from meshwright.spec import parse_layout

    layout = parse_layout(text)
    model = _model()
    tokens = torch.cat([t for rank in range(layout.data) for t in _tokens(rank)])
    F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
    expected = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    seen = {name: torch.zeros_like(g, dtype=torch.bool) for name, g in expected.items()}
    for boxes in ranks.run(_gradients, text, world=layout.devices):
        for name, offset, size, gradient in boxes:
            box = tuple(slice(o, o + n) for o, n in zip(offset, size, strict=True))
            seen[name][box] = True
            # transformers computes its norms in fp32, in doubles too.
            assert torch.allclose(
                gradient, expected[name][box], rtol=1e-4, atol=1e-6 * float(expected[name].abs().max())
            )
    assert all(bool(whole.all()) for whole in seen.values())
