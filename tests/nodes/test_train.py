"""A training run over two nodes is the run on one."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from meshwright.train.launch.local import launch_local
from tests.nodes.namespaces import Nodes
from tests.nodes.ranks import torchrun

MODEL = Path(__file__).parents[1] / "train" / "loop" / "nano-llama.json"
STEPS = 3


def _arguments(layout: str, folder: Path) -> list[str]:
    flags = {
        "model": MODEL,
        "layout": layout,
        "run": folder,
        "train.steps": STEPS,
        "train.seq_len": 32,
        "train.global_batch": 8,
        "data.source": "synthetic:chain",
        "checkpoint.every": 0,
        "launch.device": "cpu",
        "launch.timeout_s": 30,
    }
    return ["train", *(f"--{name}={value}" for name, value in flags.items()), "--metrics.no-tensorboard"]


def _losses(folder: Path) -> list[float]:
    steps = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [step["step"] for step in steps] == list(range(1, STEPS + 1))
    return [step["loss"] for step in steps]


@pytest.mark.parametrize("layout", ["fsdp2 tp2"])
def test_a_run_over_two_nodes_has_the_losses_of_the_run_on_one(nodes: Nodes, tmp_path: Path, layout: str) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    command = [sys.executable, "-m", "meshwright", *_arguments(layout, one)]
    assert launch_local(command, 4, one) == 0
    done = torchrun(nodes, _arguments(layout, two), ranks_per_node=2, timeout=90)
    assert [each.code for each in done] == [0, 0], "\n".join(each.output for each in done)
    assert _losses(two) == pytest.approx(_losses(one), rel=1e-5)
