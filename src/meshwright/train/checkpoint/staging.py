"""Staging: the numbers as they are now, copied to the host, so that training may go on while they are written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch

from meshwright.train.checkpoint.boxes import Box


class Stage:
    """Host buffers, kept from save to save (pinned where the numbers come from a GPU: making them is slow)."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, tuple[int, ...]], torch.Tensor] = {}
        self._copied: torch.Event | None = None
        self._device: torch.device | None = None

    def copy(self, boxes: Iterable[Box]) -> list[Box]:
        """The same boxes with their numbers in host buffers. From a GPU the copies are only queued: `ready` waits.

        Later work on the current stream does not change what is copied.
        """
        self._copied = None
        staged = []
        for box in boxes:
            buffer = self._buffer(box)
            buffer.copy_(box.tensor, non_blocking=True)
            staged.append(replace(box, tensor=buffer))
            if box.tensor.device.type != "cpu":
                self._device = box.tensor.device
        if self._device is not None:
            self._copied = torch.Event(self._device)
            self._copied.record(torch.accelerator.current_stream(self._device))
        return staged

    def ready(self) -> None:
        """Wait until the copies are there. For the thread that writes them."""
        if self._copied is not None and self._device is not None:
            # A new thread stands on device 0 and would open a context there.
            torch.accelerator.set_device_index(self._device)
            self._copied.synchronize()

    def _buffer(self, box: Box) -> torch.Tensor:
        found = self._buffers.get(box.place)
        if found is None or found.shape != box.tensor.shape or found.dtype != box.tensor.dtype:
            on_accelerator = box.tensor.device.type != "cpu"
            found = torch.empty(box.size, dtype=box.tensor.dtype, pin_memory=on_accelerator)
            self._buffers[box.place] = found
        return found
