"""Which network interface leads to the other nodes; two real ones are in tests/nodes."""

from __future__ import annotations

import socket
import sys
from ipaddress import ip_address

import pytest

if not sys.platform.startswith("linux"):
    pytest.skip("Linux only", allow_module_level=True)

from meshwright.train.launch import interfaces
from meshwright.train.launch.environment import Launcher, Place
from meshwright.train.launch.interfaces import addresses, interface_between_nodes, interface_of
from meshwright.train.launch.process_group import _interface


def test_the_loopback_has_its_address() -> None:
    assert interface_of("127.0.0.1") == "lo"
    assert ("lo", ip_address("127.0.0.1")) in set(addresses())


def test_every_address_is_one_of_an_interface_that_is_there() -> None:
    assert {name.partition(":")[0] for name, _ in addresses()} <= {name for _, name in socket.if_nameindex()}


def test_no_interface_has_an_address_of_nobody() -> None:
    assert interface_of("198.51.100.7") is None


@pytest.mark.parametrize("name", ["127.0.0.1", "127.0.1.1", "::1", "localhost", "no-such-host.invalid"])
def test_a_name_that_leads_nowhere_else_gives_the_default_route(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def own(host: str) -> list[str]:
        return ["192.0.2.5"] if host == interfaces.OUTSIDE else [name] if name[0] in "1:" else []

    monkeypatch.setattr(interfaces, "_own_addresses_towards", own)
    monkeypatch.setattr(interfaces, "interface_of", {"192.0.2.5": "eth7"}.get)
    assert interface_between_nodes(name) == "eth7"


def test_a_machine_without_a_network_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interfaces, "_own_addresses_towards", lambda host: ["127.0.0.1"])
    assert interface_between_nodes("127.0.0.1") is None


@pytest.mark.parametrize("launcher", ["local", "torchrun", "slurm"])
def test_ranks_of_one_machine_need_no_network(launcher: Launcher) -> None:
    assert _interface(Place(1, 4, 1, 4, 0, "no-such-host.invalid", 29500, launcher)) == "lo"


def test_ranks_of_two_machines_ask_for_the_way_to_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interfaces, "_own_addresses_towards", {"gpu08": ["192.0.2.5"]}.get)
    monkeypatch.setattr(interfaces, "interface_of", {"192.0.2.5": "eth7"}.get)
    assert _interface(Place(5, 8, 1, 4, 1, "gpu08", 29500, "slurm")) == "eth7"
