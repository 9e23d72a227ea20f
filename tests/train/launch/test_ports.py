"""Ports for rank 0."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from meshwright.train.launch.ports import free_port

GIVEN = Path("/proc/sys/net/ipv4/ip_local_port_range")


@pytest.mark.parametrize("host", ["127.0.0.1", ""])
def test_a_free_port_is_none_that_the_system_gives_to_connections(host: str) -> None:
    lowest = int(GIVEN.read_text().split()[0]) if GIVEN.exists() else 32768
    for _ in range(50):
        port = free_port(host)
        assert 20_000 <= port < lowest
        with socket.create_server((host, port)):
            pass


def test_a_port_that_is_taken_is_not_offered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        # Only that one is left below the system's: another is taken from these.
        monkeypatch.setattr("meshwright.train.launch.ports.LOWEST_PORT", port)
        (tmp_path / "range").write_text(f"{port + 1}\t60999\n")
        monkeypatch.setattr("meshwright.train.launch.ports.GIVEN_PORTS", tmp_path / "range")
        assert free_port() != port
