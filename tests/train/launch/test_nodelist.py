"""Slurm's short forms, by the examples of its manual pages."""

from __future__ import annotations

import pytest

from meshwright.train.launch.errors import LaunchError
from meshwright.train.launch.nodelist import first_host, hosts, tasks_of_node


@pytest.mark.parametrize(
    ("nodelist", "expected"),
    [
        ("node1", "node1"),
        ("node[01-04,7]", "node01 node02 node03 node04 node7"),
        ("tux[1,3-5]", "tux1 tux3 tux4 tux5"),
        ("lx[15,18,32-33]", "lx15 lx18 lx32 lx33"),
        ("lx15,lx18,lx[32-33]", "lx15 lx18 lx32 lx33"),
        ("rack[0-1]-n[9-10]", "rack0-n9 rack0-n10 rack1-n9 rack1-n10"),
        ("a[1-2]-ib,gpu-b.cluster.org", "a1-ib a2-ib gpu-b.cluster.org"),
        ("n[098-101]", "n098 n099 n100 n101"),
    ],
)
def test_a_nodelist_names_its_hosts_in_order(nodelist: str, expected: str) -> None:
    assert list(hosts(nodelist)) == expected.split()
    assert first_host(nodelist) == expected.split()[0]


@pytest.mark.parametrize(
    "nodelist",
    ["", ",", "a,,b", "node[", "node[1-3", "node[3-1]", "node[a-b]", "node[]", "n]1[", "n[0-999999999]", "a,"],
)
def test_what_is_no_nodelist_is_refused(nodelist: str) -> None:
    with pytest.raises(LaunchError, match="is not a list of hosts"):
        list(hosts(nodelist))


def test_tasks_per_node_are_counted_out() -> None:
    assert [tasks_of_node("4(x2),3,1(x2)", node) for node in range(5)] == [4, 4, 3, 1, 1]
