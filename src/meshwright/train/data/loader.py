"""Loader: the global batch of each step, split over data ranks and micro-batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from meshwright.train.batch import Batch
from meshwright.train.data.collate import MaskTargets, RankReader
from meshwright.train.data.dataset import Dataset
from meshwright.train.data.errors import DataError
from meshwright.train.data.prefetch import Prefetcher


class Loader:
    """Micro-batches of one data rank, step after step, read ahead by a thread; `close` it, or use it in a `with`.

    The global batch of step k is places [k·B, (k + 1)·B) of the data set's endless order, across the ends of epochs:
    nothing is dropped. Data rank r of R takes the r-th run of B / R places, in micro-batches of `micro_batch` (None:
    one). Ranks of one `data_rank` (tensor, context, pipeline) get the same. Raises DataError where B does not split so,
    or is more than an epoch.
    """

    def __init__(
        self,
        dataset: Dataset,
        global_batch: int,
        data_ranks: int = 1,
        data_rank: int = 0,
        micro_batch: int | None = None,
        *,
        mask_targets: MaskTargets | None = None,
        device: torch.device | str = "cpu",
        prefetch: int = 2,
    ) -> None:
        self.dataset, self.global_batch = dataset, global_batch
        micro = micro_batch if micro_batch is not None else max(global_batch // max(data_ranks, 1), 1)
        _check_split(global_batch, data_ranks, data_rank, micro)
        _check_enough(dataset, global_batch)
        share = global_batch // data_ranks
        self._read = RankReader(dataset, data_rank * share, share, micro, mask_targets, _numbered(device))
        self._ahead = prefetch
        self._prefetcher: Prefetcher[tuple[list[Batch], int]] | None = None
        self.consumed = 0
        """Samples of the endless order that all ranks together have taken."""
        self.counted = 0
        """Targets of this rank in the step that `next` gave last."""

    def __iter__(self) -> Iterator[list[Batch]]:
        return self

    def __next__(self) -> list[Batch]:
        """The next step's micro-batches; `consumed` is then past them. There is always a next step."""
        if self._ahead and self._prefetcher is None:
            self._prefetcher = Prefetcher(self._read, self.consumed, self.global_batch, self._ahead)
        step, self.counted = self._prefetcher.get() if self._prefetcher else self._read(self.consumed)
        self.consumed += self.global_batch
        return step

    def sample_ids(self, step: int) -> list[np.ndarray]:
        """Sample ids of this rank in `step` by micro-batch, each [micro_batch]."""
        return self._read.ids(step * self.global_batch)

    def batches(self, step: int) -> list[Batch]:
        """Micro-batches of this rank in `step`, counted from sample 0; `consumed` stays."""
        return self._read(step * self.global_batch)[0]

    def target_tokens(self, step: int) -> int:
        """Targets that this rank counts in `step`: its part of the one normaliser of the loss."""
        if self.dataset.all_targets and self._read.mask is None:
            return self._read.count * self.dataset.config.seq_len
        return self._read(step * self.global_batch)[1]

    def state_dict(self) -> dict[str, Any]:
        """Where the data stand: the same on every rank, under every layout."""
        return {"consumed": self.consumed, "data": self.dataset.identity}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on after the last sample taken, whatever the number of ranks, the micro-batch or the global batch.

        Raises DataError when the samples would be others than those of the saved run.
        """
        if not isinstance(state.get("consumed"), int) or state["consumed"] < 0 or "data" not in state:
            raise DataError(f"The data position {state} is none of ours.")
        if state["data"] != self.dataset.identity:
            raise DataError(
                f"The checkpoint stands at sample {state['consumed']:,} of other data: "
                f"{_differing(str(state['data']), self.dataset.identity)}.",
                ["the source, tokenizer, seq_len, seed and split of the saved run", "a new run"],
            )
        self.close()
        self.consumed = state["consumed"]

    def close(self) -> None:
        """End the reading thread. A later `next` starts another one."""
        if self._prefetcher is not None:
            self._prefetcher.close()
            self._prefetcher = None

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _numbered(device: torch.device | str) -> torch.device:
    """The device with its number, as another thread needs it."""
    device = torch.device(device)
    bare = device.type == "cuda" and device.index is None
    return torch.device("cuda", torch.cuda.current_device()) if bare else device


def _check_split(batch: int, ranks: int, rank: int, micro: int) -> None:
    if ranks < 1 or not 0 <= rank < ranks:
        raise DataError(f"Data rank {rank} of {ranks}.", [f"0 to {ranks - 1}" if ranks > 0 else "1 rank or more"])
    if micro < 1:
        raise DataError(f"A micro-batch of {micro}.", ["1 or more"])
    unit = ranks * micro
    if batch < 1 or batch % unit:
        below = max(batch, 0) // unit * unit
        raise DataError(
            f"A global batch of {batch} is not a multiple of {unit}: {ranks} data ranks × micro-batches of {micro}.",
            [f"global batch {b}" for b in (below, below + unit) if b],
        )


def _check_enough(dataset: Dataset, batch: int) -> None:
    if batch > len(dataset):
        raise DataError(
            f"The data hold {len(dataset):,} samples of {dataset.config.seq_len:,} tokens, fewer than one global batch "
            f"of {batch:,}.",
            ["more text", f"a global batch up to {len(dataset)}", "a shorter data.seq_len"],
        )


def _differing(saved: str, here: str) -> str:
    """Where two identities differ, in words."""
    was, now = saved.split(), here.split()
    if len(was) != len(now):
        return f"{saved}, and here {here}"
    names = ["tokens", *was]
    return ", ".join(
        f"{names[at]} {a[:12]}, here {b[:12]}" for at, (a, b) in enumerate(zip(was, now, strict=True)) if a != b
    )
