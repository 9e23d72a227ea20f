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
import signal
import socket
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from meshwright.train.launch.orphans import die_with_parent
from meshwright.train.launch.pool_task import Task, clean, close_groups, failed, last_collectives, restored, run_task
from meshwright.train.launch.recorder import dump_of_collectives, switch_recorder_on

# What ranks use sooner or later: 5 s of imports that forked processes share.
PRELOADED = (
    "torch.distributed.tensor",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.distributed.checkpoint",
    "torch.nn.parallel",
    "meshwright.modes.record",
)


def main(descriptor: int, parent: int, folder: Path) -> None:
    """Import torch, then fork ranks until the pool closes the socket."""
    die_with_parent(parent)
    switch_recorder_on()
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
            log.with_suffix(".recorder").write_bytes(dump_of_collectives())
            log.with_suffix(".collectives").write_text("\n".join(last_collectives()))

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
        with restored():
            try:
                pipe.send_bytes(run_task(task))
            except BaseException as error:
                # Told before the groups are closed, so that no peer's echo can be earlier.
                pipe.send_bytes(failed(task.rank, error))
                close_groups()
            if pipe.recv() != "clean":
                return
            clean()
        pipe.send_bytes(b"clean")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
