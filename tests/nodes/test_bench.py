"""Layouts measured over two nodes: the way that a group's traffic takes decides, as the plan says."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from meshwright.bench.documents import read_results
from meshwright.plan.shortlist import simulated_estimate
from meshwright.spec.cluster import Cluster
from meshwright.spec.cluster_text import parse_cluster
from meshwright.spec.model_config import load_model
from meshwright.spec.notation import parse_layout
from meshwright.spec.workload import make_workload
from tests.nodes.namespaces import Nodes
from tests.nodes.ranks import by_hand, torchrun
from tests.train.loop.runs import NANO

SCRIPT = Path(__file__).parents[2] / "examples" / "bench_tp_fsdp.py"
LAYOUT = "fsdp2 tp2 mbs8"
# Many tokens of few numbers each: much to send by tensor parallelism, little to compute and few parameters to gather.
SEQ_LEN, GLOBAL_BATCH = 256, 16
WORK = ["--model", NANO, "--seq-len", str(SEQ_LEN), "--global-batch", str(GLOBAL_BATCH), "--device", "cpu"]
EFFORT = ["--steps", "3", "--warm-up", "2", "--trace", "0"]


# Each process is rank r on its node, and then another rank: 0 and 1 are neighbours first, then 0 and 2.
BOTH_WAYS = """
import os, runpy, sys
script, folder, *words = sys.argv[1:]
rank = int(os.environ["RANK"])
for name, rank in (("inside", rank), ("across", (0, 2, 1, 3)[rank])):
    os.environ["RANK"] = str(rank)
    sys.argv = [script, *words, "--out", f"{folder}/{name}"]
    runpy.run_path(script, run_name="__main__")
    os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)
"""


def test_tensor_parallel_inside_the_nodes_wins_as_predicted(nodes: Nodes, measured: Path, tmp_path: Path) -> None:
    cluster = parse_cluster(str(measured))
    assert _predicted_seconds(cluster) < _predicted_seconds(_turned(cluster))
    # Ranks 0 and 1 are a tensor group, ranks 0 and 2 a sharding group.
    words = ["--tp", "2", "--dp", "2", *WORK, *EFFORT, "--micro-batch", "8"]
    command = [sys.executable, "-c", BOTH_WAYS, str(SCRIPT), str(tmp_path), *words]
    done = by_hand(nodes, (0, 0, 1, 1), command, timeout=240)
    assert [each.code for each in done] == [0] * 4, "\n".join(each.output for each in done)
    assert _seconds(tmp_path / "inside") < _seconds(tmp_path / "across")


@pytest.mark.long
def test_the_verb_measures_layouts_over_the_nodes_in_the_predicted_order(
    nodes: Nodes, measured: Path, tmp_path: Path
) -> None:
    layouts = f"{LAYOUT}, tp4 mbs{GLOBAL_BATCH}"
    words = ["bench", "--layouts", layouts, *WORK, *EFFORT, "--repeats", "1", "--no-single"]
    words += ["--cluster", str(measured), "--out", str(tmp_path)]
    done = torchrun(nodes, words, ranks_per_node=2, timeout=400)
    assert [each.code for each in done] == [0, 0], "\n".join(each.output for each in done)
    found = read_results(tmp_path)
    assert found.machine["nodes"] == 2
    assert [(row.status, row.predicted_place, row.measured_place) for row in found.rows] == [
        ("done", 1, 1),
        ("done", 2, 2),
    ]


def _seconds(folder: Path) -> float:
    """A step's, as the script has left it."""
    (row,) = read_results(folder).rows
    assert (row.layout, row.status) == (LAYOUT, "done")
    assert row.step
    return row.step.median


def _predicted_seconds(cluster: Cluster) -> float:
    workload = make_workload(SEQ_LEN, GLOBAL_BATCH, precision="fp32", implementation="eager")
    return simulated_estimate(load_model(NANO), cluster, workload, parse_layout(LAYOUT)).step_seconds


def _turned(cluster: Cluster) -> Cluster:
    """The same links for ranks whose neighbours are on the other node, which share the way there."""
    return replace(
        cluster,
        intra=replace(cluster.inter, bytes_per_s=cluster.inter.bytes_per_s / cluster.devices_per_node),
        inter=cluster.intra,
        nics_per_node=float(cluster.devices_per_node),
    )
