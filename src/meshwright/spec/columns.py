"""Layouts as columns: the same fields as a Layout, each a number or a numpy array.

Cost formulas read these, so that one code prices one layout or a million of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from meshwright.spec.layout import CONTEXT_KINDS, RECOMPUTE, SCHEDULES, Layout

Number = Any
"""An int, a float, or a numpy array of either."""


@dataclass(frozen=True, slots=True)
class LayoutColumns:
    """A Layout's fields as numbers or arrays of one length; names became codes (index in the tuple)."""

    replicate: Number
    shard: Number
    zero_stage: Number
    context: Number
    context_kind: Number
    tensor: Number
    sequence_parallel: Number
    expert: Number
    pipeline: Number
    schedule: Number
    virtual_stages: Number
    micro_batch: Number
    recompute: Number
    offload_optimizer: Number
    offload_parameters: Number
    offload_nvme: Number
    quantized_weights: Number
    quantized_gradients: Number
    secondary_shard: Number
    servers: Number
    staleness: Number
    stage_layers: Any = ()
    """Layers of each stage by hand: one tuple for all rows, or an object array of tuples; empty: balanced."""

    @property
    def data(self) -> Number:
        """Data-parallel ranks."""
        return self.replicate * self.shard

    @property
    def devices(self) -> Number:
        """Devices in all."""
        return self.data * self.context * self.tensor * self.pipeline

    @property
    def stages(self) -> Number:
        """Pipeline stages in all."""
        return self.pipeline * self.virtual_stages

    def take(self, index: Any) -> LayoutColumns:
        """The rows that `index` (a mask or positions) selects."""
        picked = {}
        for f in fields(self):
            value = getattr(self, f.name)
            picked[f.name] = value[index] if isinstance(value, np.ndarray) and value.ndim else value
        return LayoutColumns(**picked)

    def row(self, index: int) -> Layout:
        """One row as a Layout."""

        def at(name: str) -> int:
            value = getattr(self, name)
            return int(value[index]) if np.ndim(value) else int(value)

        names = {"optimizer": "offload_optimizer", "parameters": "offload_parameters", "nvme": "offload_nvme"}
        quantized = {"weights": "quantized_weights", "gradients": "quantized_gradients"}
        return Layout(
            replicate=at("replicate"),
            shard=at("shard"),
            zero_stage=at("zero_stage"),
            context=at("context"),
            context_kind=CONTEXT_KINDS[at("context_kind")],
            tensor=at("tensor"),
            sequence_parallel=bool(at("sequence_parallel")),
            expert=at("expert"),
            pipeline=at("pipeline"),
            schedule=SCHEDULES[at("schedule")],
            virtual_stages=at("virtual_stages"),
            micro_batch=at("micro_batch"),
            recompute=RECOMPUTE[at("recompute")],
            offload=tuple(name for name, column in names.items() if at(column)),
            quantized=tuple(name for name, column in quantized.items() if at(column)),
            secondary_shard=at("secondary_shard"),
            servers=at("servers"),
            staleness=at("staleness"),
            stage_layers=self.stage_layers[index] if isinstance(self.stage_layers, np.ndarray) else self.stage_layers,
        )


def columns_of(layout: Layout) -> LayoutColumns:
    """One Layout as plain numbers."""
    return LayoutColumns(
        replicate=layout.replicate,
        shard=layout.shard,
        zero_stage=layout.zero_stage,
        context=layout.context,
        context_kind=CONTEXT_KINDS.index(layout.context_kind),
        tensor=layout.tensor,
        sequence_parallel=int(layout.sequence_parallel),
        expert=layout.expert,
        pipeline=layout.pipeline,
        schedule=SCHEDULES.index(layout.schedule),
        virtual_stages=layout.virtual_stages,
        micro_batch=layout.micro_batch,
        recompute=RECOMPUTE.index(layout.recompute),
        offload_optimizer=int("optimizer" in layout.offload),
        offload_parameters=int("parameters" in layout.offload),
        offload_nvme=int("nvme" in layout.offload),
        quantized_weights=int("weights" in layout.quantized),
        quantized_gradients=int("gradients" in layout.quantized),
        secondary_shard=layout.secondary_shard,
        servers=layout.servers,
        staleness=layout.staleness,
        stage_layers=layout.stage_layers,
    )


def stack(layouts: Sequence[Layout]) -> LayoutColumns:
    """Many Layouts as one set of integer arrays."""
    rows = [columns_of(layout) for layout in layouts]
    by_hand = np.empty(len(rows), dtype=object)
    for index, row in enumerate(rows):
        by_hand[index] = row.stage_layers
    names = [f.name for f in fields(LayoutColumns) if f.name != "stage_layers"]
    arrays = {name: np.array([getattr(row, name) for row in rows], dtype=np.int64) for name in names}
    return LayoutColumns(**arrays, stage_layers=by_hand)
