"""The two nodes of these tests are what they claim to be."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from tests.nodes import namespaces
from tests.nodes.namespaces import PAYLOAD_SHARE, RATE, Nodes, NodesError, two_nodes

RECEIVE = """
import socket, sys, time
with socket.create_server((sys.argv[1], 9000)) as server:
    peer, _ = server.accept()
    received, begun = 0, 0.0
    while chunk := peer.recv(1 << 20):
        received += len(chunk)
        if not begun and received > 1 << 21:  # tbf's bucket is empty, and TCP has found its rate
            begun, before = time.monotonic(), received
    print((received - before) / (time.monotonic() - begun))
"""
SEND = """
import socket, sys, time
for _ in range(500):
    try:
        peer = socket.create_connection((sys.argv[1], 9000))
        break
    except OSError:
        time.sleep(0.02)
for _ in range(int(sys.argv[2])):
    peer.sendall(bytes(1 << 20))
peer.close()
"""


def _bytes_per_second(nodes: Nodes, address: str, sender: int, mebibytes: int) -> float:
    commands = [[sys.executable, "-c", RECEIVE, address], [sys.executable, "-c", SEND, address, str(mebibytes)]]
    done = nodes.run(commands, places=(0, sender), timeout=30)
    assert done[0].code == 0, done[0].output
    return float(done[0].output)


def test_bytes_between_nodes_have_the_links_rate(nodes: Nodes) -> None:
    expected = RATE * PAYLOAD_SHARE
    assert _bytes_per_second(nodes, nodes.addresses[0], sender=1, mebibytes=8) == pytest.approx(expected, rel=0.05)


def test_bytes_inside_a_node_are_not_held_back(nodes: Nodes) -> None:
    assert _bytes_per_second(nodes, nodes.addresses[0], sender=0, mebibytes=200) > 10 * RATE


def test_nodes_are_gone_afterwards_with_all_that_ran_on_them() -> None:
    try:
        with pytest.raises(KeyboardInterrupt), two_nodes() as pair:  # noqa: PT012
            with pytest.raises(TimeoutError, match=r"not done after 0\.5 s:\nwaiting"):
                pair.run([["sh", "-c", "echo waiting; sleep 60"], ["true"]], timeout=0.5)
            # As torchrun starts its ranks: in a session of their own, which outlives the one that was started.
            subprocess.run(["ip", "netns", "exec", pair.names[1], "sh", "-c", "setsid sleep 60 &"], check=True)
            left = psutil.Process(*pair.processes())
            raise KeyboardInterrupt
    except NodesError as reason:
        pytest.skip(f"no two nodes here: {reason}")
    known = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert not any(name in known for name in pair.names)
    psutil.wait_procs([left], timeout=5)
    assert not left.is_running() or left.status() == psutil.STATUS_ZOMBIE


def test_a_machine_without_the_tools_or_the_right_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NodesError, match="need root"), two_nodes():
        pass
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(namespaces.shutil, "which", lambda tool: None)
    with pytest.raises(NodesError, match="no ip and no tc here"), two_nodes():
        pass
