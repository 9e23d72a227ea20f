"""Ranks of two nodes find each other, and gloo the interface between them, without a variable set by hand."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.nodes.namespaces import INTERFACE, Nodes, NodesError, two_nodes
from tests.nodes.ranks import by_slurm

RANK = """
import os
from meshwright.train.launch.environment import read_place
from meshwright.train.launch.process_group import finalize, initialize
place = read_place()
initialize(place, device="cpu", timeout=20)
import torch, torch.distributed as dist
told = torch.tensor([10.0 ** place.rank])
dist.all_reduce(told)
dist.barrier()
finalize()
print(place.launcher, place.node, told.item(), os.environ["GLOO_SOCKET_IFNAME"])
"""
TOWARDS = """
import sys
from meshwright.train.launch.interfaces import interface_between_nodes
print(interface_between_nodes(sys.argv[1]))
"""


def test_ranks_of_a_slurm_step_meet_by_themselves(nodes: Nodes) -> None:
    done = by_slurm(nodes, [sys.executable, "-c", RANK], timeout=60)
    # c10d may warn before, for instance that an address has no name.
    told = [each.output.splitlines()[-1:] for each in done]
    assert told == [[f"slurm {node} 11.0 {INTERFACE}"] for node in range(2)], done


def test_each_node_finds_the_interface_that_leads_to_the_first(nodes: Nodes) -> None:
    assert _towards(nodes, nodes.addresses[0]) == [INTERFACE, INTERFACE]


def test_a_name_that_leads_to_the_loopback_gives_the_default_route() -> None:
    try:
        with two_nodes() as pair:
            assert _towards(pair, "127.0.1.1") == ["None", "None"]
            way = ["route", "add", "default", "via", pair.addresses[1]]
            subprocess.run(["ip", "-n", pair.names[0], *way], check=True)
            assert _towards(pair, "127.0.1.1") == [INTERFACE, "None"]
    except NodesError as reason:
        pytest.skip(f"no two nodes here: {reason}")


def _towards(nodes: Nodes, host: str) -> list[str]:
    done = nodes.run([[sys.executable, "-c", TOWARDS, host]] * 2, timeout=20)
    return [each.output.strip() for each in done]
