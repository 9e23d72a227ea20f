"""Two nodes on one machine: network namespaces that a veth link of a known rate joins.

Each namespace has its own interfaces, ports and loopback, so that processes in two of them meet only over the link, as
on two machines; files, cores and the host's name are shared. `tc tbf` shapes both ends of the link; the loopback, over
which the ranks of one node talk, is not shaped.

    with two_nodes(rate="50mbit") as nodes:
        done = nodes.run([["hostname"], ["ping", "-c1", nodes.addresses[0]]], timeout=10)

Needs root, `ip` and `tc` (package iproute2). Where it is not allowed, `two_nodes` raises NodesError with the reason.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from meshwright.train.launch.orphans import parent_death_signal

INTERFACE = "fabric0"
"""The link's end in each namespace."""
ADDRESSES = ("10.77.0.1", "10.77.0.2")
"""No other namespace sees them, so every pair of nodes may have the same."""
RATE = 50e6 / 8
"""Of the link of these tests, in bytes/s on the wire: slow enough that it, and not the cores, is the limit."""
BURST = "72kb"
"""More than the largest packet that segmentation offload makes (64 KiB and headers): tbf would take those apart."""
LATENCY = "400ms"
"""How long a packet may wait in the queue, before it is dropped: so long that none is. The link is slow, not lossy."""
PAYLOAD_SHARE = 1448 / 1514
"""TCP payload of a full Ethernet frame of 1500 bytes + 14 of header; tbf counts the frame."""
PREFIX = "meshwright"

_numbers = itertools.count()


class NodesError(Exception):
    """This machine, or this user on it, cannot make network namespaces and shaped links."""


@dataclass(frozen=True)
class Done:
    """How the command on one node ended."""

    code: int
    output: str
    """Of stdout and stderr together."""


@dataclass(frozen=True)
class Nodes:
    """Two nodes that are up."""

    names: tuple[str, str]
    """Of the namespaces."""
    addresses: tuple[str, str] = ADDRESSES

    def start(
        self, node: int, command: Sequence[str], *, environment: Mapping[str, str] | None = None, output: Path
    ) -> subprocess.Popen[bytes]:
        """Start `command` on a node, this process's environment and `environment` around it, printing to `output`."""
        with output.open("ab") as log:
            return subprocess.Popen(
                ["ip", "netns", "exec", self.names[node], *command],
                env={**_own_environment(), **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=parent_death_signal(os.getpid()),
            )

    def run(
        self,
        commands: Sequence[Sequence[str]],
        *,
        places: Sequence[int] = (0, 1),
        environments: Sequence[Mapping[str, str]] | None = None,
        timeout: float,
    ) -> list[Done]:
        """Run all commands at once, each on the node that `places` names, and wait for them.

        Raises TimeoutError, with what they have printed, when they take more than `timeout` seconds; then, and after
        every other error, all processes on the nodes are ended.
        """
        around = environments or [{}] * len(commands)
        with tempfile.TemporaryDirectory() as folder:
            logs = [Path(folder, f"{number}.log") for number in range(len(commands))]
            running: list[subprocess.Popen[bytes]] = []
            try:
                for command, place, variables, log in zip(commands, places, around, logs, strict=True):
                    running.append(self.start(place, command, environment=variables, output=log))
                deadline = time.monotonic() + timeout
                for process in running:
                    process.wait(max(deadline - time.monotonic(), 0.01))
            except subprocess.TimeoutExpired:
                told = "\n".join(log.read_text(errors="replace") for log in logs if log.exists())
                raise TimeoutError(f"not done after {timeout:g} s:\n{told}") from None
            finally:
                if any(process.poll() is None for process in running):
                    self.kill()
                for process in running:
                    process.wait()
            return [
                Done(process.returncode, log.read_text(errors="replace"))
                for process, log in zip(running, logs, strict=True)
            ]

    def processes(self) -> list[int]:
        """Ids of all processes on the two nodes."""
        return [int(pid) for name in self.names for pid in _ip("netns", "pids", name).split()]

    def kill(self) -> None:
        """End all of them, those too that a launcher has put into sessions of their own."""
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextmanager
def two_nodes(rate: str = "50mbit") -> Iterator[Nodes]:
    """Two nodes joined by a link of `rate` (as tc spells it) in each direction; both are gone afterwards.

    Raises NodesError with the reason.
    """
    _check_tools()
    _remove_abandoned()
    number = next(_numbers)
    nodes = Nodes((f"{PREFIX}-{os.getpid()}-{number}a", f"{PREFIX}-{os.getpid()}-{number}b"))
    try:
        for name in nodes.names:
            _ip("netns", "add", name)
        first, second = nodes.names
        # Made inside the namespaces: nothing of this machine's own network is touched.
        _ip("-n", first, "link", "add", INTERFACE, "type", "veth", "peer", "name", INTERFACE, "netns", second)
        for name, address in zip(nodes.names, nodes.addresses, strict=True):
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", INTERFACE)
            _ip("-n", name, "link", "set", INTERFACE, "up")
            shape = ("tbf", "rate", rate, "burst", BURST, "latency", LATENCY)
            _call("tc", "-n", name, "qdisc", "add", "dev", INTERFACE, "root", *shape)
        yield nodes
    finally:
        _remove(nodes)


def _own_environment() -> dict[str, str]:
    """Without what this machine's own network needs."""
    return {
        name: value for name, value in os.environ.items() if name not in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    }


def _check_tools() -> None:
    if os.geteuid() != 0:
        raise NodesError("network namespaces need root")
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        raise NodesError(f"no {' and no '.join(missing)} here (package iproute2)")


def _remove(nodes: Nodes) -> None:
    """End what still runs on the nodes and remove them; of nodes that are half made, what there is."""
    with suppress(NodesError):
        nodes.kill()
    for name in nodes.names:
        with suppress(NodesError):
            _ip("netns", "del", name)


def _remove_abandoned() -> None:
    """Remove the nodes of processes that were killed before they could do it."""
    for line in _ip("netns", "list").splitlines():
        name = line.split()[0] if line.split() else ""
        prefix, _, rest = name.partition("-")
        pid = rest.partition("-")[0]
        if prefix == PREFIX and pid.isdecimal() and not Path("/proc", pid).exists():
            with suppress(NodesError):
                _ip("netns", "del", name)


def _ip(*arguments: str) -> str:
    return _call("ip", *arguments)


def _call(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    if done.returncode:
        raise NodesError(f"`{' '.join(command)}`: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout
