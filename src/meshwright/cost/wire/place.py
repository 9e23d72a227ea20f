"""Place: where a rank stands on every axis of a layout.

Ranks count tensor innermost, then context, shard, replicate, pipeline outermost; expert ranks are the innermost ones
of a stage (`cost.collectives.groups`, `modes.mesh`).
"""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.cost.schedules import placement
from meshwright.spec.layout import Layout


@dataclass(frozen=True, slots=True)
class Place:
    """A rank's index on the axes."""

    layout: Layout
    rank: int

    @property
    def in_stage(self) -> int:
        """Among the ranks of its pipeline rank."""
        return self.rank % stage_ranks(self.layout)

    @property
    def pipeline(self) -> int:
        """Pipeline rank."""
        return self.rank // stage_ranks(self.layout)

    @property
    def tensor(self) -> int:
        """Tensor rank."""
        return self.in_stage % self.layout.tensor

    @property
    def shard(self) -> int:
        """Among the ranks that share states."""
        return self.in_stage // self.layout.tensor % shard_ranks(self.layout)

    @property
    def expert_shard(self) -> int:
        """Among the ranks that share an expert's states."""
        if self.layout.expert == 1:
            return self.shard
        return self.in_stage // self.layout.expert % expert_shard_ranks(self.layout)

    @property
    def stages(self) -> list[int]:
        """Indices of its stages, in model order."""
        layout = self.layout
        if layout.stages == 1:
            return [0]
        places = placement(layout.schedule, layout.pipeline, layout.virtual_stages)
        return [stage for stage, rank in enumerate(places) if rank == self.pipeline]


def stage_ranks(layout: Layout) -> int:
    """Ranks of one pipeline rank."""
    return layout.data * layout.context * layout.tensor


def shard_ranks(layout: Layout) -> int:
    """Ranks that share states: shard and context ranks."""
    return layout.shard * layout.context


def expert_data_ranks(layout: Layout) -> int:
    """Replicas of one expert; of experts that are not spread, as of everything else."""
    return stage_ranks(layout) // (layout.expert if layout.expert > 1 else layout.tensor)


def expert_shard_ranks(layout: Layout) -> int:
    """Replicas of one expert that share its states: those of one replica of the model, where they divide like that."""
    shards, rest = divmod(expert_data_ranks(layout), layout.replicate)
    return 1 if rest or not shards else shards


def axis_ranks(layout: Layout, axis: str, rank: int = 0) -> tuple[int, ...]:
    """The ranks of `rank`'s group on an axis of `modes.mesh`, "kv_copies" left out; "world": all. KeyError: no axis."""
    c, t, e, stage = layout.context, layout.tensor, max(layout.expert, 1), stage_ranks(layout)
    shards, experts = shard_ranks(layout), expert_shard_ranks(layout)
    spread = e > 1
    size, stride = {
        "tensor": (t, 1),
        "context": (c, t),
        "sequence": (c * t, 1),
        "shard": (shards, t),
        "replicate": (layout.replicate, t * shards),
        "data": (layout.data * c, t),
        "stage": (stage, 1),
        "pipeline": (layout.pipeline, stage),
        "expert": (e, 1),
        "expert_data": (expert_data_ranks(layout), e if spread else t),
        "expert_shard": (experts, e if spread else t),
        "expert_replicate": (expert_data_ranks(layout) // experts, experts * (e if spread else t)),
        "world": (layout.devices, 1),
    }[axis]
    first = rank - rank // stride % size * stride
    return tuple(first + i * stride for i in range(size))
