"""Ports on which rank 0 will listen."""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from pathlib import Path

from meshwright.train.launch.environment import LOCALHOST

GIVEN_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST_PORT = 20_000
"""Below are those of many services."""
PORTS_TRIED = 32


def free_port(host: str = LOCALHOST) -> int:
    """A port on which nobody listens now; `host` "": on no address of this machine.

    The system gives those of a range of its own to whoever connects: by the time that rank 0 listens, one of them may
    be taken. So it is one below them, where that can be had.
    """
    below = range(LOWEST_PORT, _first_given_port())
    for port in random.SystemRandom().sample(below, min(PORTS_TRIED, len(below))):
        with socket.socket() as probe, suppress(OSError):
            probe.bind((host, port))
            return port
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _first_given_port() -> int:
    """The lowest port that the system gives to connections; Linux says which, elsewhere they begin at 49152."""
    try:
        return int(GIVEN_PORTS.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32768
