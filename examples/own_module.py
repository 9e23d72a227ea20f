"""Your own nn.Module under any layout: a table of module names for tensor parallelism, a list for pipelines.

    torchrun --standalone --nproc-per-node 4 examples/own_module.py "fsdp2 tp2"
    torchrun --standalone --nproc-per-node 2 examples/own_module.py "pp2:1f1b"

The model below is plain PyTorch and knows nothing of Meshwright. `RECIPE` is all that the modes have to be told.
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from meshwright.modes.gradients import complete_gradients, end_step, micro_batch
from meshwright.modes.mesh import make_mesh
from meshwright.modes.parallelize import Parallel, parallelize
from meshwright.modes.pipeline import make_schedule
from meshwright.modes.recipe import Recipe
from meshwright.modes.vocabulary import cross_entropy_sum
from meshwright.spec import parse_layout
from meshwright.train.launch.environment import read_place
from meshwright.train.launch.process_group import finalize, initialize
from meshwright.train.optim.config import OptimConfig
from meshwright.train.optim.norm import clip, global_norm
from meshwright.train.optim.optimizer import make_optimizer

VOCAB, DIM, HEADS, LAYERS, SEQ = 128, 64, 4, 4, 32


class SelfAttention(nn.Module):
    """Causal attention on [batch, seq, dim]. The weights say how many heads there are: a rank may hold some of them."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(DIM, DIM) for _ in range(3))
        self.out = nn.Linear(DIM, DIM)

    def forward(self, x: Tensor) -> Tensor:
        batch, seq, _ = x.shape
        q, k, v = (f(x).view(batch, seq, -1, DIM // HEADS).transpose(1, 2) for f in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, seq, -1))


class Layer(nn.Module):
    """Pre-norm attention and a two-layer perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.attention = SelfAttention()
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class MyModel(nn.Module):
    """Token ids [batch, seq] to logits [batch, seq, vocab]."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(DIM)
        self.classifier = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embedding(x)
        for layer in self.layers:
            x = layer(x)
        return self.classifier(self.norm(x))


RECIPE = Recipe(
    order=("embedding", "layers.*", "norm", "classifier"),
    blocks="layers.*",
    tensor={
        "embedding": "embedding",
        "layers.*.norm1": "sequence",
        "layers.*.attention": "enter",
        "layers.*.attention.query": "column",
        "layers.*.attention.key": "column",
        "layers.*.attention.value": "column",
        "layers.*.attention.out": "row",
        "layers.*.norm2": "sequence",
        "layers.*.mlp": "enter",
        "layers.*.mlp.0": "column",
        "layers.*.mlp.2": "row",
        "norm": "sequence",
        "classifier": "head",
    },
    sequence_dim=1,
)


def batches(step: int, count: int, sequences: int, data_rank: int) -> list[Tensor]:
    """`count` micro-batches of token ids [sequences, SEQ + 1] of one data rank: arithmetic progressions."""
    generator = torch.Generator().manual_seed(step * 1000 + data_rank)
    start, stride = torch.randint(VOCAB, (2, count * sequences, 1), generator=generator)
    return list(((start + stride * torch.arange(SEQ + 1)) % VOCAB).split(sequences))


def forward_backward(parallel: Parallel, micro_batches: list[Tensor], targets: int) -> Tensor:
    """Gradients of (sum of token losses / targets), complete; returns this rank's share of the loss."""
    tensor = parallel.mesh.group("tensor")

    def loss_of(logits: Tensor, wanted: Tensor) -> Tensor:
        # Every rank divides by the global number of targets, and gradients are summed: nothing is averaged twice.
        return cross_entropy_sum(logits.flatten(0, 1), wanted.flatten(), tensor, VOCAB) / targets

    losses: list[Tensor] = []
    if parallel.mesh.layout.stages > 1:
        schedule = make_schedule(parallel.stages, parallel.indices, parallel.mesh, len(micro_batches), loss_of)
        joined = torch.cat(micro_batches)
        inputs = (joined[:, :-1],) if 0 in parallel.indices else ()
        schedule.step(*inputs, target=joined[:, 1:], losses=losses, return_outputs=False)
    else:
        for i, tokens in enumerate(micro_batches):
            with micro_batch(parallel, last=i == len(micro_batches) - 1):
                loss = loss_of(parallel.runners[0](tokens[:, :-1]), tokens[:, 1:])
                loss.backward()
                losses.append(loss)
    complete_gradients(parallel)
    return torch.stack([loss.detach() for loss in losses]).sum() if losses else torch.zeros(())


def main(text: str) -> None:
    """Train MyModel for a few steps under the layout `text`."""
    device = initialize(read_place())
    layout = parse_layout(text)
    mesh = make_mesh(layout, device)
    torch.manual_seed(0)  # every rank builds the same model, and keeps its share of it
    parallel = parallelize(MyModel(), mesh, recipe=RECIPE)
    optimizer = make_optimizer(parallel.parts, OptimConfig(lr=3e-3))
    count, sequences = 4, 4
    last_stage = layout.stages - 1 in parallel.indices or layout.stages == 1
    for step in range(50):
        own = [t.to(device) for t in batches(step, count, sequences, mesh.index("data"))]
        loss = forward_backward(parallel, own, count * sequences * SEQ * layout.data)
        clip(parallel.parts, global_norm(parallel.parts), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        end_step(parallel)
        loss = loss.to(device) if last_stage and mesh.index("tensor") == 0 else torch.zeros((), device=device)
        dist.all_reduce(loss)
        if dist.get_rank() == 0 and step % 10 == 9:
            print(f"step {step + 1:3d}  loss {float(loss):.4f}")
    finalize()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "ddp1")
