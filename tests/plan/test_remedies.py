"""What would make a job fit does make it fit, as the search finds it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright.cost.result import DOES_NOT_FIT, FITS
from meshwright.plan.question import Question
from meshwright.plan.remedies import remedies
from meshwright.plan.scan import scan
from meshwright.plan.search import make_plan
from meshwright.plan.states import leanest
from meshwright.spec.cluster_text import parse_cluster
from meshwright.spec.errors import WorkloadError
from meshwright.spec.model import Model
from meshwright.spec.model_config import load_model
from meshwright.spec.notation import parse_layout
from meshwright.spec.workload import Workload
from tests.plan.jobs import DENSE, MIXTURE, question

MIXTRAL, NODE = load_model("mixtral-8x7b"), parse_cluster("8xH100")
WORK = Workload(4096, 64)


@pytest.mark.parametrize(("device", "precision", "legal"), [("V100", "bf16", "fp16"), ("A100-40GB", "fp8", "bf16")])
def test_a_precision_that_the_device_lacks_is_refused_with_those_it_has(
    device: str, precision: str, legal: str
) -> None:
    # Volta has fp16 tensor cores only; fp8 came with Hopper.
    with pytest.raises(WorkloadError, match=f"--precision {legal}"):
        make_plan(load_model("gpt2"), parse_cluster(f"8x{device}"), Workload(1024, 8, precision=precision))


def test_a_mixture_that_one_node_cannot_hold_fits_on_two_and_with_the_hosts_help() -> None:
    asked = Question(MIXTRAL, NODE, WORK, NODE.devices)
    found = {remedy.change.split()[0]: remedy for remedy in remedies(asked)}
    # 46.7e9 × 16 bytes = 696 GiB: 87 GiB on each of 8 devices of 79, 43.5 GiB on each of 16.
    assert found["16"].verdict == FITS
    assert make_plan(MIXTRAL, replace(NODE, nodes=2), WORK, top=1).plans
    assert found["--offload:"].verdict == FITS
    assert parse_layout(found["--offload:"].layout).offload
    assert found["--lora-rank"].verdict == FITS
    # States do not shrink with the sequence.
    assert found["--seq-len"].verdict == DOES_NOT_FIT
    assert found["--seq-len"].reserved_bytes > 87 * 2.0**30


@pytest.mark.parametrize("model", [DENSE, MIXTURE])
def test_the_leanest_layout_is_hardly_larger_than_the_leanest_of_the_whole_space(model: Model) -> None:
    asked = question(model, 4)
    found = leanest(asked)
    assert found is not None
    least = float(scan(asked).pareto.reserved.min())
    assert least * (1 - 1e-6) <= found[1] <= 1.05 * least


def test_a_plan_that_fits_needs_no_remedy() -> None:
    assert make_plan(load_model("gpt2"), parse_cluster("1xH100"), Workload(1024, 8)).remedies == ()
