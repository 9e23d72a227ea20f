"""Energy that a GPU used, by NVML's counter; None where there is no GPU, no NVML, or no such counter."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch


def millijoules(device: torch.device) -> float | None:
    """The counter's reading: mJ since the driver was loaded (nvmlDeviceGetTotalEnergyConsumption, Volta and later)."""
    if device.type != "cuda":
        return None
    try:
        nvml: Any = import_module("pynvml")
        nvml.nvmlInit()
        uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
        return float(nvml.nvmlDeviceGetTotalEnergyConsumption(nvml.nvmlDeviceGetHandleByUUID(uuid.encode())))
    except Exception:  # a driver, a library or a board without it: then the row has no energy
        return None
