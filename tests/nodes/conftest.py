"""Fixtures: `nodes`, two nodes joined by a link, or a skip with the reason; `measured`, what `comms` finds on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.nodes.namespaces import RATE, Nodes, NodesError, two_nodes
from tests.nodes.ranks import torchrun


@pytest.fixture(scope="session")
def nodes() -> Iterator[Nodes]:
    """One pair of nodes for all tests of a pytest process."""
    with ExitStack() as stack:
        try:
            pair = stack.enter_context(two_nodes(rate=f"{8 * RATE:.0f}bit"))
        except NodesError as reason:
            pytest.skip(f"no two nodes here: {reason}")
        yield pair


@pytest.fixture(scope="session")
def measured(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cluster file that `comms` writes of the two nodes, with two ranks each."""
    file = tmp_path_factory.mktemp("comms") / "cluster.toml"
    wish = ["--device", "cpu", "--op", "all-reduce,all-gather", "--min-bytes", "128KiB", "--max-bytes", "512KiB"]
    done = torchrun(nodes, ["comms", *wish, "--iterations", "5", "--out", str(file)], ranks_per_node=2, timeout=150)
    assert [each.code for each in done] == [0, 0], "\n".join(each.output for each in done)
    return file
