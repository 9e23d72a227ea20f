"""What there is to run on: the ranks that a launcher started, and the GPUs of this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from meshwright.train.config.values import ConfigError
from meshwright.train.launch.environment import ALONE, Place, read_place


@dataclass(frozen=True, slots=True)
class Here:
    """Facts of this machine and of who started this process."""

    place: Place = ALONE
    """This process among the ranks that a launcher started; its launcher is "single" where nobody did."""
    gpus: int = 0
    """Visible on this machine."""
    gpu: str = ""
    """Their name, as the driver has it."""

    @property
    def started(self) -> bool:
        """Whether the ranks are there already, so that none are to be started."""
        return self.place.launcher != "single"


def look(device: str = "auto") -> Here:
    """The facts; `device` is launch.device. torch is imported only on a machine that has GPUs. Raises LaunchError."""
    gpus, gpu = (0, "") if device == "cpu" or not has_gpu_driver() else _gpus()
    return Here(read_place(), gpus, gpu)


def has_gpu_driver() -> bool:
    """Whether a GPU's driver is loaded (NVIDIA's, or AMD's)."""
    return any(Path(path).exists() for path in ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg"))


def _gpus() -> tuple[int, str]:
    try:
        import torch
    except ImportError as error:
        raise ConfigError("Training needs PyTorch: pip install 'meshwright[train]'.") from error
    count = torch.cuda.device_count()
    return count, torch.cuda.get_device_name(0) if count else ""
