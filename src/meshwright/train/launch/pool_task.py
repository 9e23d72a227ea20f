"""One task on a rank of a RankPool: find its function, join its process group, call it, put everything back."""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import os
import pickle
import random
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from types import ModuleType
from typing import Any

from meshwright.train.launch.failures import failure_of

LAST_COLLECTIVES = 20
"""How many a timeout shows."""
_recording = contextlib.ExitStack()
_collectives: list[Any] = []
"""Those of the task, in the order they began."""


@dataclass(frozen=True)
class Reference:
    """A function by name, and the file it is in when the name alone cannot be imported."""

    module: str
    qualname: str
    path: str | None = None


@dataclass(frozen=True)
class Task:
    """What one rank shall do."""

    number: int
    function: Reference
    arguments: bytes
    """Pickled (args, kwargs); read after the function's module, whose classes they may hold."""
    search_path: list[str]
    rank: int
    world: int
    backend: str
    threads: int
    port: int
    timeout: float


def last_collectives() -> list[str]:
    """The last collectives that the task began. Any thread may ask."""
    return [str(entry) for entry in list(_collectives)[-LAST_COLLECTIVES:]]


def run_task(task: Task) -> bytes:
    """The message with the function's result. Raises whatever the function does."""
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import PrefixStore, TCPStore

    from meshwright.modes.record import Recorder

    global _collectives
    _collectives = []
    torch.set_num_threads(task.threads)
    _seed(torch)
    function = load(task.function, task.search_path)
    args, kwargs = pickle.loads(task.arguments)
    device = None
    if "nccl" in task.backend:
        torch.cuda.set_device(task.rank)
        device = torch.device("cuda", task.rank)
    os.environ.update(RANK=str(task.rank), WORLD_SIZE=str(task.world), LOCAL_RANK=str(task.rank))
    os.environ.update(LOCAL_WORLD_SIZE=str(task.world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(task.port))
    store = TCPStore("127.0.0.1", task.port, is_master=False)
    dist.init_process_group(
        task.backend,
        store=PrefixStore(f"task{task.number}", store),
        rank=task.rank,
        world_size=task.world,
        # Beyond the pool's own limit, which tells more.
        timeout=timedelta(seconds=task.timeout + 60),
        device_id=device,
    )
    _recording.enter_context(recorder := Recorder())
    _collectives = recorder.entries
    return pickle.dumps(("result", function(*args, **kwargs)))


def load(reference: Reference, search_path: list[str]) -> Callable[..., Any]:
    """The function that `reference` names; a test file is loaded from its path if it must be."""
    sys.path.extend(entry for entry in search_path if entry not in sys.path)
    value: Any = _module(reference)
    for name in reference.qualname.split("."):
        value = getattr(value, name)
    return value  # type: ignore[no-any-return]


def _module(reference: Reference) -> ModuleType:
    name = "__mp_main__" if reference.module == "__main__" else reference.module
    path = reference.path
    found = sys.modules.get(name)
    if found is None:
        with contextlib.suppress(ImportError):
            found = importlib.import_module(name)
    if found is not None and (path is None or os.path.realpath(found.__file__ or "") == os.path.realpath(path)):
        return found
    if path is None:
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def failed(rank: int, error: BaseException) -> bytes:
    """The message of a failure, with the exception itself where it survives the way."""
    failure = failure_of(rank, error)
    try:
        original: bytes | None = pickle.dumps(error)
        pickle.loads(original or b"")
    except Exception:
        original = None
    return pickle.dumps(("failure", (failure, original)))


def close_groups() -> None:
    """Leave the process groups: peers that wait for this rank fail then."""
    import torch.distributed as dist

    if dist.is_initialized():
        with contextlib.suppress(Exception):
            dist.destroy_process_group()


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Environment, folder, path and signal handlers afterwards as before."""
    environment, folder, path = dict(os.environ), os.getcwd(), list(sys.path)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[:] = path
    for number, handler in handlers.items():
        signal.signal(number, handler)


def _seed(torch: ModuleType) -> None:
    import numpy

    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)


def clean() -> None:
    """Nothing of a task is left for the next: groups, defaults, caches that hold groups."""
    import torch
    from torch.distributed.tensor.debug import _clear_sharding_prop_cache

    _recording.close()
    close_groups()
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.set_grad_enabled(True)
    torch.use_deterministic_algorithms(False)
    # Its entries hold meshes that compare equal to the next task's, with this task's groups.
    _clear_sharding_prop_cache()  # type: ignore[no-untyped-call]
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is not None:
        dynamo.reset()
    gc.collect()
