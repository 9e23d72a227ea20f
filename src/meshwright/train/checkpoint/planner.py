"""The planners that show Boxes to torch.distributed.checkpoint (DCP), which writes and reads them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import create_default_global_save_plan
from torch.distributed.checkpoint.metadata import (
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from meshwright.train.checkpoint.boxes import Box, person_name, volume
from meshwright.train.checkpoint.errors import CheckpointError


class BoxSavePlanner(SavePlanner):
    """Writes this rank's boxes, each one chunk of its whole tensor. No other rank writes them (see `ownership`)."""

    def __init__(self, boxes: Sequence[Box]) -> None:
        self.boxes = {box.place: box for box in boxes}

    def set_up_planner(
        self, state_dict: dict[str, Any], storage_meta: StorageMeta | None = None, is_coordinator: bool = False
    ) -> None:
        """Nothing to prepare: the boxes are known."""

    def create_local_plan(self) -> SavePlan:
        """One write for each box."""
        return SavePlan([_write_item(box) for box in self.boxes.values()])

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """All ranks' chunks, listed by tensor."""
        return create_default_global_save_plan(all_plans)

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        """The plan as it came back."""
        return new_plan

    def resolve_data(self, write_item: WriteItem) -> torch.Tensor | io.BytesIO:
        """The numbers of a box."""
        index = write_item.index
        return self.boxes[index.fqn, tuple(index.offset or ())].tensor


def _write_item(box: Box) -> WriteItem:
    data = TensorWriteData(box.chunk, TensorProperties(dtype=box.tensor.dtype), torch.Size(box.shape))
    return WriteItem(MetadataIndex(box.key, box.offset), WriteItemType.SHARD, tensor_data=data)


class BoxLoadPlanner(LoadPlanner):
    """Reads into boxes whatever saved chunks overlap them."""

    def __init__(self, boxes: Sequence[Box], metadata: Metadata) -> None:
        self.boxes = boxes
        self.items = [item for number, box in enumerate(boxes) for item in _read_items(number, box, metadata)]

    def set_up_planner(
        self, state_dict: dict[str, Any], metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        """Nothing to prepare: the reads are known."""

    def create_local_plan(self) -> LoadPlan:
        """One read for each overlap of a box and a saved chunk."""
        return LoadPlan(self.items)

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        """The ranks' plans as they are."""
        return global_plan

    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        """The plan as it came back."""
        return central_plan

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Refuses: a checkpoint holds tensors only, and bytes would be unpickled."""
        raise CheckpointError(f"The checkpoint holds {read_item.storage_index.fqn!r} as bytes, not as a tensor.")

    def resolve_tensor(self, read_item: ReadItem) -> torch.Tensor:
        """Where the read numbers go: a view of a box."""
        tensor = self.boxes[int(read_item.dest_index.index or 0)].tensor
        for dim, (start, length) in enumerate(zip(read_item.dest_offsets, read_item.lengths, strict=True)):
            tensor = tensor.narrow(dim, start, length)
        return tensor

    def commit_tensor(self, read_item: ReadItem, tensor: torch.Tensor) -> None:
        """Nothing to do: the view was written in place."""


def _read_items(number: int, box: Box, metadata: Metadata) -> list[ReadItem]:
    """The reads that fill a box. Raises CheckpointError when the saved chunks leave some of it open."""
    if box.empty:
        return []
    saved = metadata.state_dict_metadata.get(box.key)
    if not isinstance(saved, TensorStorageMetadata):
        raise CheckpointError(f"The checkpoint has no tensor {person_name(box.key)}.")
    items = create_read_items_for_chunk_list(box.key, saved, [box.chunk])
    found, needed = sum(volume(item.lengths) for item in items), volume(box.size)
    if found != needed:
        raise CheckpointError(f"The checkpoint holds {found} of the {needed} numbers needed of {person_name(box.key)}.")
    # The index says which box is meant: one rank may hold the same box of a tensor twice (a tied table).
    return [replace(item, dest_index=MetadataIndex(box.key, box.offset, number)) for item in items]
