"""From an architecture and a mesh to this rank's share of the model, with the numbers every layout starts from."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from meshwright.modes.cuts import Cut, Initialise
from meshwright.modes.mesh import Mesh
from meshwright.modes.options import Options
from meshwright.modes.parallelize import parallelize
from meshwright.train.models.architecture import Architecture
from meshwright.train.models.build import build_model
from meshwright.train.models.init import init_part, init_rules
from meshwright.train.step import Step


def assemble(
    architecture: Architecture,
    mesh: Mesh,
    options: Options | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    places: Sequence[int] | None = None,
    initialise: Initialise | None = None,
) -> Step:
    """The step of a Decoder under `mesh.layout`. Each parameter's numbers depend on `seed` and its name alone, unless
    `initialise` gives them. `places`: the rank of each pipeline stage, where a schedule table says so.

    Raises LayoutError for what does not divide.
    """
    decoder = build_model(architecture, device="meta", dtype=dtype)
    rule = init_rules(decoder)

    def fill(name: str, cut: Cut, tensor: torch.Tensor) -> None:
        init_part(name, cut.shape, cut.offset, cut.size, tensor, seed, rule(name))

    model = architecture.model
    return Step(
        parallelize(decoder, mesh, options=options, initialise=initialise or fill, places=places),
        model.vocab,
        model.hidden,
    )
