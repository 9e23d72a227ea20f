"""Collate: samples of one data rank as micro-batches of tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch

from meshwright.train.batch import IGNORED, Batch
from meshwright.train.data.dataset import Dataset, Sample
from meshwright.train.data.errors import DataError

MaskTargets = Callable[[int, np.ndarray], np.ndarray]
"""(sample id, targets [seq_len]) → bool [seq_len]: which targets the loss counts. Must depend on these alone, so that
every layout counts the same ones."""


@dataclass(frozen=True)
class RankReader:
    """What one data rank reads of the global batch that starts at a place of the endless order."""

    dataset: Dataset
    first: int
    """Places before this rank's share of a global batch."""
    count: int
    """Places of its share."""
    micro_batch: int
    mask: MaskTargets | None
    device: torch.device

    def ids(self, place: int) -> list[np.ndarray]:
        """Sample ids by micro-batch, each [micro_batch]."""
        ids = self.dataset.order.ids(place + self.first, self.count)
        return np.split(ids, self.count // self.micro_batch)

    def __call__(self, place: int) -> tuple[list[Batch], int]:
        """The micro-batches, and how many targets they count."""
        batches, counted = [], 0
        for ids in self.ids(place):
            samples = [self._sample(int(i)) for i in ids]
            counted += sum(int(np.count_nonzero(sample.targets != IGNORED)) for sample in samples)
            batches.append(collate(samples, self.device))
        return batches, counted

    def _sample(self, index: int) -> Sample:
        sample = self.dataset.sample(index)
        if self.mask is not None:
            counts = np.asarray(self.mask(index, sample.targets))
            if counts.shape != sample.targets.shape or counts.dtype != bool:
                raise DataError(
                    f"mask_targets gave {counts.dtype} {list(counts.shape)} for sample {index}, "
                    f"not bool {list(sample.targets.shape)}."
                )
            sample.targets[~counts] = IGNORED
        return sample


def collate(samples: list[Sample], device: torch.device) -> Batch:
    """The samples as one Batch in host memory; page-locked where `device` is a GPU, so that it copies alongside."""
    if device.type == "cuda":
        # A new thread stands at GPU 0, where page-locking would open a second context.
        torch.cuda.set_device(device)

    def tensor(arrays: list[np.ndarray]) -> torch.Tensor:
        out = torch.from_numpy(np.stack(arrays))
        return out.pin_memory() if device.type == "cuda" else out

    documents = [sample.documents for sample in samples if sample.documents is not None]
    return Batch(
        tensor([sample.tokens for sample in samples]),
        tensor([sample.targets for sample in samples]),
        tensor([sample.positions for sample in samples]),
        tensor(documents) if documents else None,
    )


def batch_hash(batches: Batch | Iterable[Batch]) -> str:
    """SHA-256 of the numbers of one batch or several: equal where every tensor is, on whatever device."""
    digest = hashlib.sha256()
    for batch in [batches] if isinstance(batches, Batch) else batches:
        for tensor in (batch.tokens, batch.targets, batch.positions, batch.documents):
            digest.update(b"none" if tensor is None else str(list(tensor.shape)).encode())
            if tensor is not None:
                digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
