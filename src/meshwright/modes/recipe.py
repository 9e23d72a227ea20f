"""Recipe: what the modes have to know of a model, as data. A model carries it; it imports nothing distributed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Recipe:
    """Where in a model each mode applies. A name may hold `*` for one level (`layers.*.attention.q`)."""

    order: tuple[str, ...]
    """Modules in the order in which the forward pass calls them, for pipelines: ("embed", "layers.*", "norm", "head").

    A stage keeps some of them; in place of the others its forward finds modules that return their first argument."""
    blocks: str = "layers.*"
    """The repeated blocks: units of checkpointing, compilation and sharding."""
    tensor: Mapping[str, str] = field(default_factory=dict)
    """Tensor parallelism: name of a module → its style.

    | style | the module |
    | --- | --- |
    | `enter` | takes hidden states that it needs whole: attention, feed-forward |
    | `column` | Linear split by output features; by whole heads where it has `head_rows` or its parent `head_dim` |
    | `columns_kv` | the same for key and value heads; its parent has `head_dim` |
    | `row` | Linear split by input features; the ranks' outputs are summed |
    | `embedding` | table split by rows of the vocabulary |
    | `head` | Linear split by rows of the vocabulary; its logits stay split |
    | `sequence` | whole on every rank, acts on each token alone: norms, routers |
    | `partial` | whole on every rank, acts on each head alone: norms of queries and keys |
    | `positions` | whole table of positions, added to the embedding |
    """
    tied: tuple[tuple[str, str], ...] = ()
    """Pairs of parameters that are one: ("head.weight", "embed.tokens.weight"): the second is the one that is kept."""
    attention: str | None = None
    """Modules whose attribute `kernel` computes attention; context parallelism puts its own there."""
    core: str | None = None
    """Modules whose method `core` selective recomputation runs again in backward."""
    experts: str | None = None
    """Modules whose attribute `exchange` carries tokens to their experts and back; expert parallelism puts its own.
    Their child `experts` holds stacked parameters [experts, …]."""
    buffers: tuple[str, ...] = ()
    """Buffers that checkpoints hold beside the parameters; alike on all ranks of a stage."""
    sequence_dim: int = 0
    """Dimension of the hidden states that sequence parallelism splits: 0 of [tokens, hidden], 1 of [batch, seq, …]."""
    draws: bool = True
    """Whether a forward pass draws random numbers (dropout): recomputation then draws the same ones again."""
