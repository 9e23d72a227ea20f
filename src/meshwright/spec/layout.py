"""Layout: how a job is split. Data only; `notation` reads and prints it, `rules` say what is legal."""

from __future__ import annotations

from dataclasses import dataclass

SCHEDULES = (
    "gpipe",
    "1f1b",
    "interleaved1f1b",
    "loopedbfs",
    "interleavedzerobubble",
    "zbvzerobubble",
    "dualpipev",
)
"""Pipeline schedules by PyTorch's names, lower case. A schedule's code is its index here."""
MULTI_STAGE_SCHEDULES = SCHEDULES[2:]
"""Schedules that hold several stages on a rank (PyTorch's PipelineScheduleMulti)."""
V_SCHEDULES = ("zbvzerobubble", "dualpipev")
"""Schedules that hold exactly two stages on a rank, placed as a V."""
V_CODES = tuple(SCHEDULES.index(name) for name in V_SCHEDULES)
"""The same as columns have them."""
RECOMPUTE = ("none", "selective", "full")
CONTEXT_KINDS = ("ring", "allgather", "ulysses")
OFFLOADS = ("optimizer", "parameters", "nvme")
QUANTIZED = ("weights", "gradients")
MAX_DEGREE = 1_000_000
"""The largest number that a layout may hold; more is a slip of the keyboard."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Degrees, what data-parallel ranks shard, schedule, micro-batch, recomputation, offload."""

    replicate: int = 1
    """Data-parallel replicas that share nothing."""
    shard: int = 1
    """Data-parallel ranks that share states, as far as `zero_stage` says."""
    zero_stage: int = 0
    """0 nothing is sharded, 1 optimizer states, 2 + gradients, 3 + parameters (FSDP)."""
    context: int = 1
    context_kind: str = "ring"
    tensor: int = 1
    sequence_parallel: bool = True
    """With tensor parallelism: norms and residuals split along the sequence."""
    expert: int = 1
    """Expert-parallel degree; its ranks are taken from the data, context and tensor ranks."""
    pipeline: int = 1
    schedule: str = "1f1b"
    virtual_stages: int = 1
    """Stages a rank."""
    micro_batch: int = 1
    """Sequences a micro-batch, on one data-parallel rank."""
    recompute: str = "none"
    offload: tuple[str, ...] = ()
    quantized: tuple[str, ...] = ()
    """ZeRO++: what travels as int8 / int4 (qwZ, qgZ)."""
    secondary_shard: int = 0
    """ZeRO++ hpZ: ranks of the second, node-local copy of the parameters; 0: none."""
    servers: int = 0
    """Parameter servers; 0: collectives."""
    staleness: int = 0
    """With servers: steps that a worker may run ahead; -1: unbounded."""
    stage_layers: tuple[int, ...] = ()
    """Layers of each stage by hand, in model order; empty: balanced."""

    @property
    def data(self) -> int:
        """Data-parallel ranks: each sees other samples."""
        return self.replicate * self.shard

    @property
    def devices(self) -> int:
        """Devices that the layout needs; expert ranks lie inside, servers are extra processes."""
        return self.data * self.context * self.tensor * self.pipeline

    @property
    def stages(self) -> int:
        """Pipeline stages in all."""
        return self.pipeline * self.virtual_stages

    def __str__(self) -> str:
        from meshwright.spec.notation import format_layout

        return format_layout(self)
