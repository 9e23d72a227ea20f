"""The default process group of a Place, and the device and threads of its rank."""

from __future__ import annotations

import os
import socket
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, Store

from meshwright.train.launch.environment import Place
from meshwright.train.launch.errors import LaunchError
from meshwright.train.launch.threads import threads_of_a_rank


def initialize(
    place: Place, *, device: str = "auto", backend: str = "auto", timeout: float = 600.0, threads: int | None = None
) -> torch.device:
    """Join the process group of all ranks; returns this rank's device.

    `device` is auto, cuda or cpu; `backend` auto, nccl or gloo. With nccl, tensors on the CPU travel by gloo.
    `timeout` (seconds) bounds every collective. `threads` of CPU operations: None leaves OMP_NUM_THREADS where it is
    set, and else shares the cores. Raises LaunchError: no or too few GPUs, or two ranks on one.
    """
    chosen = device_of(place, device)
    backends = backends_of(chosen, backend)
    if threads is not None or "OMP_NUM_THREADS" not in os.environ:
        count = threads or threads_of_a_rank(place.local_world_size, gpu=chosen.type == "cuda", launcher=place.launcher)
        torch.set_num_threads(count)
        os.environ["OMP_NUM_THREADS"] = str(count)
    store: Store | None = None
    if place.world_size == 1:
        store = HashStore()
    else:
        _set_environment(place)
    dist.init_process_group(
        backends,
        store=store,
        # With a store of ours, rank and world size must come along; else torchrun's agent may own the store.
        init_method=None if store is not None else "env://",
        rank=place.rank,
        world_size=place.world_size,
        timeout=timedelta(seconds=timeout),
        device_id=chosen if chosen.type == "cuda" and "nccl" in backends else None,
    )
    return chosen


def all_here(timeout: float) -> None:
    """Waits for every rank; raises RuntimeError with the ranks that did not come within `timeout` seconds.

    gloo's monitored barrier: a plain one would only say that it waited.
    """
    if dist.get_world_size() > 1 and "gloo" in dist.get_backend_config():
        dist.monitored_barrier(timeout=timedelta(seconds=timeout), wait_all_ranks=True)


def finalize() -> None:
    """Leave the process group, if there is one. Every rank calls it at the end of a run that went well."""
    if dist.is_initialized():
        dist.destroy_process_group()


def device_of(place: Place, device: str = "auto") -> torch.device:
    """The device of this rank, made current. Raises LaunchError when the node has too few GPUs."""
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if device not in ("auto", "cuda"):
        raise LaunchError(f"No device '{device}'.", ("auto", "cuda", "cpu"))
    if not torch.cuda.is_available():
        raise LaunchError("No GPU that this PyTorch can use is here.", ("device cpu", "device auto"))
    gpus = torch.cuda.device_count()
    if gpus >= place.local_world_size:
        index = place.local_rank
    elif gpus == 1 and (place.launcher == "slurm" or "SLURM_STEP_NODELIST" in os.environ):
        # srun --gpus-per-task=1 shows each rank a GPU of its own, as number 0. NCCL refuses two ranks on one.
        index = 0
    else:
        raise LaunchError(
            f"{place.local_world_size} ranks on {socket.gethostname()}, which has {gpus} GPU{'s' * (gpus > 1)}.",
            (f"{gpus} rank{'s' * (gpus > 1)} a node", "device cpu"),
        )
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def backends_of(device: torch.device, backend: str = "auto") -> str:
    """PyTorch's name of the collectives for `device`. Raises LaunchError for nccl without a GPU."""
    if backend not in ("auto", "nccl", "gloo"):
        raise LaunchError(f"No backend '{backend}'.", ("auto", "nccl", "gloo"))
    if device.type == "cpu":
        if backend == "nccl":
            raise LaunchError("nccl needs ranks on GPUs, these are on CPUs.", ("backend gloo", "backend auto"))
        return "gloo"
    return "gloo" if backend == "gloo" else "cpu:gloo,cuda:nccl"


def _set_environment(place: Place) -> None:
    """What `env://` and libraries read, as torchrun sets it."""
    os.environ.update(
        RANK=str(place.rank),
        WORLD_SIZE=str(place.world_size),
        LOCAL_RANK=str(place.local_rank),
        LOCAL_WORLD_SIZE=str(place.local_world_size),
        MASTER_ADDR=place.address,
        MASTER_PORT=str(place.port),
    )
    if sys.platform.startswith("linux") and "GLOO_SOCKET_IFNAME" not in os.environ:
        interface = _interface(place)
        if interface is not None:
            os.environ["GLOO_SOCKET_IFNAME"] = interface


def _interface(place: Place) -> str | None:
    """Where gloo listens: left alone it asks the host's name, which often leads to an address that is not there."""
    if place.world_size == place.local_world_size:
        return "lo"  # ranks of one machine need no other
    from meshwright.train.launch.interfaces import interface_between_nodes

    return interface_between_nodes(place.address)
