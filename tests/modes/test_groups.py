"""Groups of a layout's axes have the time limit that the job was given."""

from __future__ import annotations

import torch
import torch.distributed as dist

from meshwright.modes.mesh import make_mesh
from meshwright.spec.notation import parse_layout
from meshwright.train.launch.pool import RankPool


def limits(layout: str) -> set[float]:
    """Seconds that a collective may take, over the groups of all axes."""
    mesh = make_mesh(parse_layout(layout))
    backends = [mesh.group(axis)._get_backend(torch.device("cpu")) for axis in mesh.axes if "×" not in axis]
    assert len(backends) >= 2
    assert isinstance(backends[0], dist.ProcessGroupGloo)
    return {backend.options._timeout.total_seconds() for backend in backends}


def test_a_collective_of_an_axis_may_take_as_long_as_one_of_all_ranks(ranks: RankPool) -> None:
    # The pool gives its ranks' default group a minute more than the task; gloo's own limit is 30 minutes.
    assert ranks.run(limits, "fsdp2 tp2", timeout=77) == [{137.0}] * 4
