"""The Decoder's parts: masks, rotary positions, heads cut from outside, pipeline stages, compilation."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from meshwright.modes.passthrough import Passthrough
from meshwright.rehearse.world import fake_world
from meshwright.train.models.attention import sdpa
from meshwright.train.models.build import build_model
from meshwright.train.models.decoder import Decoder
from meshwright.train.models.init import init_module
from meshwright.train.models.positions import Rope, rotate, tables

DOCUMENTS = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 2], [5, 5, 5, 5, 5, 5, 5, 5]])


def model_of(name: str = "tiny-llama") -> Decoder:
    model = build_model(name, device="cpu", dtype=torch.float64)
    init_module(model, 0)
    return model


def batch(seq: int = 16) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 512, (2, seq), generator=generator), torch.arange(seq).expand(2, -1)


@pytest.mark.parametrize("window", [0, 3, 100])
@pytest.mark.parametrize("documents", [None, DOCUMENTS])
@pytest.mark.parametrize("causal", [True, False])
def test_attention_sees_its_window_and_its_document(window: int, documents: Tensor | None, causal: bool) -> None:
    """Against attention written out query by query."""
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(2, 4, 8, 6, dtype=torch.float64, generator=generator)
    k, v = torch.randn(2, 2, 2, 8, 6, dtype=torch.float64, generator=generator)
    positions = torch.arange(8).expand(2, -1)
    out = sdpa(q, k, v, causal=causal, window=window, documents=documents, positions=positions)
    for b in range(2):
        for head in range(4):
            for i in range(8):
                seen = [
                    j
                    for j in range(8)
                    if (not causal or j <= i)
                    and (not window or abs(i - j) < window)
                    and (documents is None or documents[b, i] == documents[b, j])
                ]
                scores = (k[b, head // 2, seen] @ q[b, head, i]) / math.sqrt(6)
                torch.testing.assert_close(out[b, head, i], scores.softmax(0) @ v[b, head // 2, seen])


def test_documents_in_one_sequence_are_computed_as_if_alone() -> None:
    model, (tokens, _) = model_of(), batch()
    documents = torch.tensor([[0] * 6 + [1] * 10] * 2)
    positions = torch.cat((torch.arange(6), torch.arange(10))).expand(2, -1)
    together = model(tokens, positions, documents).view(2, 16, -1)
    first = model(tokens[:, :6], positions[:, :6]).view(2, 6, -1)
    second = model(tokens[:, 6:], positions[:, 6:]).view(2, 10, -1)
    torch.testing.assert_close(together, torch.cat((first, second), dim=1), rtol=1e-10, atol=1e-12)


def test_pairs_turn_by_position_times_frequency() -> None:
    """A pair at distance dim/2 is one complex number; a position multiplies it by e^(i · position · θ^(-2j/dim))."""
    x = torch.randn(1, 3, 2, 8, dtype=torch.float64)
    positions = torch.tensor([[0, 7, 100_000]])
    turned = rotate(x, *tables(Rope(500.0), 8, positions, torch.float64))
    angles = positions[0, :, None, None] * 500.0 ** (-torch.arange(4, dtype=torch.float64) / 4)
    expected = torch.complex(x[..., :4], x[..., 4:]) * torch.polar(torch.ones_like(angles), angles)
    torch.testing.assert_close(turned, torch.cat((expected.real, expected.imag), dim=-1))


def test_the_gradient_of_turning_is_that_of_finite_differences() -> None:
    x = torch.randn(1, 3, 2, 8, dtype=torch.float64, requires_grad=True)
    cos, sin = tables(Rope(), 8, torch.tensor([[3, 50, 4000]]), torch.float64)
    assert torch.autograd.gradcheck(lambda t: rotate(t, cos, sin), x)


def test_rotary_tables_are_float32_in_a_bfloat16_model_and_the_same_for_any_order_of_positions() -> None:
    model = build_model("tiny-llama", device="cpu", dtype=torch.bfloat16)
    positions = torch.arange(4096).view(1, -1)
    cos, _ = model.context(positions, None).rope
    assert cos.dtype == torch.float32
    order = torch.randperm(4096)
    shuffled, _ = model.context(positions[:, order], None).rope
    assert torch.equal(shuffled, cos[:, order])


def test_rotary_tables_stay_float32_where_fsdp2_casts_what_a_block_is_given() -> None:
    model = build_model("tiny-llama", device="cpu", dtype=torch.float32)
    seen: list[torch.dtype] = []
    block = model.layers["0"]
    block.attention.register_forward_pre_hook(lambda _, args: seen.append(args[1].rope[0].dtype))
    with fake_world(0, 2):
        fully_shard(block, mesh=init_device_mesh("cpu", (2,)), mp_policy=MixedPrecisionPolicy(torch.bfloat16))
        block(torch.zeros(8, 128), model.context(torch.arange(8).view(1, -1), None))
    assert seen == [torch.float32]


def test_heads_are_counted_by_the_weights_that_are_there() -> None:
    """Two halves of the heads, with their rows of o's input, add up to the whole: what tensor parallelism does."""
    model, (_, positions) = model_of(), batch()
    attention = model.layers["0"].attention
    context = model.context(positions, None)
    x = torch.randn(32, 128, dtype=torch.float64)
    whole, halves = attention(x, context), torch.zeros(32, 128, dtype=torch.float64)
    weights = {name: getattr(attention, name).weight for name in "qkvo"}
    for half in (0, 1):
        for name, weight in weights.items():
            cut = weight.chunk(2, dim=1 if name == "o" else 0)[half]
            getattr(attention, name).weight = nn.Parameter(cut.detach().contiguous())
        halves = halves + attention(x, context)
    torch.testing.assert_close(halves, whole)


@pytest.mark.parametrize("name", ["tiny-gpt2", "tiny-llama", "tiny-qwen2-moe"])
def test_stages_one_after_another_compute_what_the_whole_computes(name: str) -> None:
    whole, first, last = model_of(name), model_of(name), model_of(name)
    tokens, positions = batch()
    for key in list(whole.layers)[2:]:
        del first.layers[key]
    for key in list(whole.layers)[:2]:
        del last.layers[key]
    first.norm, first.head, last.embed = Passthrough(), Passthrough(), Passthrough()
    hidden = first(tokens, positions)
    assert hidden.shape == (32, whole.architecture.model.hidden)
    assert torch.equal(last(hidden, positions), whole(tokens, positions))


def test_a_compiled_block_has_no_graph_break_and_computes_the_same() -> None:
    plain, compiled = model_of("tiny-qwen3"), model_of("tiny-qwen3")
    compiled.layers["0"].compile(backend="aot_eager", fullgraph=True)
    tokens, positions = batch()
    for model in (plain, compiled):
        model(tokens, positions).square().sum().backward()
    for a, b in zip(plain.parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


def test_the_model_imports_nothing_distributed() -> None:
    folder = Path(__file__).parents[3] / "src/meshwright/train/models"
    files = list(folder.glob("*.py"))
    assert len(files) > 10
    assert not [file.name for file in files if "distributed" in "".join(_imports(file))]


def _imports(file: Path) -> list[str]:
    return [line for line in file.read_text().splitlines() if line.lstrip().startswith(("import ", "from "))]
