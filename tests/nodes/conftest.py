"""The fixture `nodes`: two nodes joined by a link of 200 Mbit/s, or a skip with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.nodes.namespaces import Nodes, NodesError, two_nodes


@pytest.fixture(scope="session")
def nodes() -> Iterator[Nodes]:
    """One pair of nodes for all tests of a pytest process."""
    with ExitStack() as stack:
        try:
            pair = stack.enter_context(two_nodes(rate="200mbit"))
        except NodesError as reason:
            pytest.skip(f"no two nodes here: {reason}")
        yield pair
