"""Memory that this rank has used at most so far, and what the figure is of."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

CUDA = "peak of PyTorch's CUDA allocator"
HOST = "peak resident memory of the process"
"""With the interpreter, libraries and everything else: hundreds of MiB more than the tensors."""


def peak_memory(device: torch.device) -> tuple[float, str]:
    """Bytes of this rank's peak so far and its kind: CUDA on a GPU, else HOST."""
    if device.type == "cuda":
        import torch

        return float(torch.cuda.max_memory_allocated(device)), CUDA
    return host_peak(), HOST


def host_peak() -> float:
    """Peak resident bytes of this process.

    Linux's VmHWM belongs to this program alone; getrusage's figure would be that of the larger parent that started it.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return float(line.split()[1]) * 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak if sys.platform == "darwin" else peak * 1024)
