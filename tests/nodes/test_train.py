"""A training run over two nodes is the run on one."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright.train.launch.pool import RankPool
from meshwright.train.metrics.jsonl import read_steps
from tests.nodes.namespaces import Nodes
from tests.nodes.ranks import torchrun
from tests.train.loop.runs import FLAGS, losses, run

LAYOUT = "fsdp2 tp2"
STEPS = 3


def test_a_run_over_two_nodes_has_the_losses_of_the_run_on_one(nodes: Nodes, ranks: RankPool, tmp_path: Path) -> None:
    flags = {**FLAGS, "layout": LAYOUT, "run": str(tmp_path / "two"), "train.steps": str(STEPS), "launch.device": "cpu"}
    done = torchrun(nodes, ["train", *map(_option, flags, flags.values())], ranks_per_node=2, timeout=240)
    assert [each.code for each in done] == [0, 0], "\n".join(each.output for each in done)
    two = losses(read_steps(tmp_path / "two" / "metrics.jsonl"))
    assert len(two) == STEPS
    assert two == pytest.approx(losses(run(ranks, tmp_path / "one", LAYOUT, train__steps=STEPS)), rel=1e-5)


def _option(name: str, value: str) -> str:
    return f"--{name.replace('.', '.no-')}" if value == "false" else f"--{name}={value}"
