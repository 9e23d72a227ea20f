"""StopFlag: SIGTERM and Ctrl-C ask for a stop after this step, and all ranks agree on the step."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import Any

import torch
import torch.distributed as dist

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopFlag:
    """A context in which `signals` only set a flag; the handlers before it are put back at its end.

    With `insist`, a second Ctrl-C raises KeyboardInterrupt: for a process that a person sees directly. Launchers send a
    rank more than one signal for a single Ctrl-C, so ranks count them as one.

        with StopFlag() as stop:
            for batch in batches:
                step(batch)
                if stop.agree():
                    break
    """

    def __init__(self, signals: Sequence[signal.Signals] = SIGNALS, *, insist: bool = False) -> None:
        self.reason: str | None = None
        """Name of the first signal that came to this rank; None: none did."""
        self._signals = tuple(signals)
        self._insist = insist
        self._before: dict[signal.Signals, Any] = {}

    @property
    def asked(self) -> bool:
        """Whether this rank was asked to stop."""
        return self.reason is not None

    def __enter__(self) -> StopFlag:
        self._before = {number: signal.signal(number, self._handle) for number in self._signals}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._insist and self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.reason = self.reason or signal.Signals(number).name

    def agree(self, group: dist.ProcessGroup | None = None) -> bool:
        """Whether any rank of `group` (None: all) was asked to stop. Every rank calls it at the same step boundary.

        One all-reduce of 4 bytes: between CPUs where the group can (nothing waits for the GPU then), else on the GPU.
        """
        if not dist.is_initialized() or dist.get_world_size(group) == 1:
            return self.asked
        flag = torch.tensor([int(self.asked)], dtype=torch.int32, device=meeting_device(group))
        dist.all_reduce(flag, op=dist.ReduceOp.MAX, group=group)
        return bool(flag.item())


def meeting_device(group: dist.ProcessGroup | None = None) -> torch.device:
    """The device of tensors that `group` (None: all ranks) can send without waiting for a GPU, if it can."""
    devices = (group or dist.group.WORLD)._device_types  # type: ignore[union-attr]
    kinds = {device.type for device in devices}
    return torch.device("cpu") if "cpu" in kinds else torch.device("cuda", torch.cuda.current_device())
