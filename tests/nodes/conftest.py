"""Fixtures: `nodes`, two nodes joined by a link, or a skip with the reason; `measured`, what `comms` finds on them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from filelock import FileLock

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
    """The cluster file that `comms` writes of the two nodes, with two ranks each; one for all pytest processes."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    file = folder / "two-nodes.toml"
    with FileLock(folder / "two-nodes.lock"):
        if not file.exists():
            wish = [
                "--device",
                "cpu",
                "--op",
                "all-reduce,all-gather",
                "--min-bytes",
                "128KiB",
                "--max-bytes",
                "512KiB",
            ]
            words = ["comms", *wish, "--iterations", "5", "--out", str(file)]
            done = torchrun(nodes, words, ranks_per_node=2, timeout=240)
            assert [each.code for each in done] == [0, 0], "\n".join(each.output for each in done)
    return file
