"""The network interface that leads to the other nodes, for gloo to listen on. Linux only.

Left alone, gloo listens where the name of its host leads. On many machines that is 127.0.0.1 (or Debian's 127.0.1.1),
which ranks of another node cannot reach: the job ends with "connection refused" or hangs. The kernel's routing table
knows better: it is asked which way the first rank lies.
"""

from __future__ import annotations

import array
import fcntl
import ipaddress
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

SIOCGIFCONF = 0x8912
IFREQ_BYTES = 16 + struct.calcsize("P") * 3
"""One entry of the list: 16 bytes of name, then a union whose largest member has a pointer's alignment."""
MOST_INTERFACES = 1024
OUTSIDE = "198.51.100.1"
"""An address for documentation (RFC 5737, TEST-NET-2): no host has it, so that the way there is the default route."""
DISCARD_PORT = 9


def interface_between_nodes(first: str) -> str | None:
    """The interface of this node that leads to the node of rank 0, whose name or address is `first`; None: not known.

    On that node itself the name may lead to the loopback, which leads nowhere else: there it is the default route's.
    """
    for host in (first, OUTSIDE):
        for address in _own_addresses_towards(host):
            if not ipaddress.ip_address(address).is_loopback:
                return interface_of(address)
    return None


def interface_of(address: str) -> str | None:
    """The interface that has one of this machine's addresses; None: no interface has it."""
    wanted = ipaddress.ip_address(address)
    return next((name for name, own in addresses() if own == wanted), None)


def addresses() -> Iterator[tuple[str, ipaddress.IPv4Address | ipaddress.IPv6Address]]:
    """Every interface that is up, with each of its addresses."""
    buffer = array.array("B", bytes(IFREQ_BYTES * MOST_INTERFACES))
    start, _ = buffer.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        # struct ifconf: the buffer's length, its address. See netdevice(7).
        answer = fcntl.ioctl(asked, SIOCGIFCONF, struct.pack("iP", len(buffer), start))
    filled = struct.unpack("iP", answer)[0]
    for at in range(0, filled, IFREQ_BYTES):
        entry = buffer[at : at + IFREQ_BYTES].tobytes()
        # The address is in the sockaddr_in behind the name: family, port, address.
        yield entry[:16].split(b"\0")[0].decode(), ipaddress.IPv4Address(entry[20:24])
    with suppress(OSError):  # a kernel without IPv6
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            digits, *_, name = line.split()
            yield name, ipaddress.IPv6Address(int(digits, 16))


def _own_addresses_towards(host: str) -> Iterator[str]:
    """The address that this machine would send from, for each address that `host` has."""
    with suppress(OSError):  # a name that nobody knows
        for family, kind, _, _, target in socket.getaddrinfo(host, DISCARD_PORT, type=socket.SOCK_DGRAM):
            # Connecting a datagram socket sends nothing: it looks up the route.
            with suppress(OSError), socket.socket(family, kind) as probe:
                probe.connect(target)
                yield probe.getsockname()[0].split("%")[0]
