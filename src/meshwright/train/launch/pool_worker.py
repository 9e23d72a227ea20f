"""The processes of a RankPool: one that imports torch and forks, and the ranks forked from it.

`python -m meshwright.train.launch.pool_worker FD PARENT DIR` imports torch once, then answers requests on the socket
FD with a line of JSON: `{"start": n, "generation": g}` forks n ranks, whose sockets come with the request, and returns
their process ids; `{"wait": pid}` returns how that rank ended. Forking is safe here: importing torch starts no thread,
and nothing else has run.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import importlib.util
import json
import os
import pickle
import random
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

from meshwright.train.launch.failures import failure_of
from meshwright.train.launch.orphans import die_with_parent

# What ranks use sooner or later: 5 s of imports that forked processes share.
PRELOADED = (
    "torch.distributed.tensor",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.distributed.checkpoint",
    "torch.nn.parallel",
    "meshwright.modes.record",
)
LAST_COLLECTIVES = 20
"""How many a timeout shows."""


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
    environment: dict[str, str] = field(default_factory=dict)


def main(descriptor: int, parent: int, folder: Path) -> None:
    """Import torch, then fork ranks until the pool closes the socket."""
    die_with_parent(parent)
    control = socket.socket(fileno=descriptor)
    control.set_inheritable(False)
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # or every collection in every rank would walk, and copy, all that torch has made
    while True:
        line, descriptors, _, _ = socket.recv_fds(control, 4096, 64)
        if not line:
            return
        request = json.loads(line)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            answer: Any = os.waitstatus_to_exitcode(status)
        else:
            answer = [
                _fork(control, descriptors, rank, folder / f"rank-{rank:05d}.{request['generation']}.log")
                for rank in range(request["start"])
            ]
            for number in descriptors:
                os.close(number)
        control.sendall(json.dumps(answer).encode() + b"\n")


def _fork(control: socket.socket, descriptors: list[int], rank: int, log: Path) -> int:
    """Fork the rank whose socket is `descriptors[rank]`; returns its process id."""
    parent = os.getpid()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        die_with_parent(parent)
        control.close()
        for other, number in enumerate(descriptors):
            if other != rank:
                os.close(number)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        _dump_on_request(log)
        _work(Connection(descriptors[rank]))
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _dump_on_request(log: Path) -> None:
    """On SIGUSR1 write the stacks and the last collectives beside the log, also while the main thread hangs in one."""
    stacks = open(log.with_suffix(".stacks"), "w")  # noqa: SIM115 (open as long as the process)
    faulthandler.enable()
    # The C handler writes the stacks at once; chained, Python's wakes the thread that asks for the collectives.
    signal.signal(signal.SIGUSR1, lambda *_: None)
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=False, chain=True)
    receiver, sender = os.pipe()
    os.set_blocking(sender, False)
    signal.set_wakeup_fd(sender, warn_on_full_buffer=False)

    def answer() -> None:
        while os.read(receiver, 1):
            # Not imported here: the main thread may hang in an import. A rank with a collective behind it has it.
            record = sys.modules.get("meshwright.modes.record")
            lines = [str(entry) for entry in record.recent()] if record is not None else []
            log.with_suffix(".collectives").write_text("\n".join(lines))

    threading.Thread(target=answer, daemon=True, name="collectives").start()


def _work(pipe: Connection) -> None:
    """Run tasks until the pool closes the pipe."""
    from torch._C._distributed_c10d import TCPStore

    # Every rank offers a store; the pool uses that of rank 0.
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    pipe.send(store.port)
    while True:
        try:
            task: Task = pipe.recv()
        except (EOFError, ConnectionResetError):
            return
        with _restored():
            try:
                pipe.send_bytes(_run(task))
            except BaseException as error:
                # Told before the groups are closed, so that no peer's echo can be earlier.
                pipe.send_bytes(_failed(task.rank, error))
                _close_groups()
            if pipe.recv() != "clean":
                return
            _clean()
        pipe.send_bytes(b"clean")


def _run(task: Task) -> bytes:
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import PrefixStore, TCPStore

    from meshwright.modes import record

    torch.set_num_threads(task.threads)
    _seed(torch)
    function = load(task.function, task.search_path)
    args, kwargs = pickle.loads(task.arguments)
    device = None
    if "nccl" in task.backend:
        torch.cuda.set_device(task.rank)
        device = torch.device("cuda", task.rank)
    os.environ.update(task.environment)
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
    record.enable_recent(LAST_COLLECTIVES)
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


def _failed(rank: int, error: BaseException) -> bytes:
    """The message of a failure, with the exception itself where it survives the way."""
    failure = failure_of(rank, error)
    try:
        original: bytes | None = pickle.dumps(error)
        pickle.loads(original or b"")
    except Exception:
        original = None
    return pickle.dumps(("failure", (failure, original)))


def _close_groups() -> None:
    import torch.distributed as dist

    if dist.is_initialized():
        with contextlib.suppress(Exception):
            dist.destroy_process_group()


@contextlib.contextmanager
def _restored() -> Any:
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


def _clean() -> None:
    """Nothing of a task is left for the next: groups, defaults, caches that hold groups."""
    import torch
    from torch.distributed.tensor.debug import _clear_sharding_prop_cache

    from meshwright.modes import record

    record.enable_recent(0)
    _close_groups()
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


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
