"""Everything that `--layouts all` runs, and layouts of 8 ranks: minutes, so only when asked for (`-m long`)."""

from __future__ import annotations

import pytest

from meshwright.check.case import Case
from meshwright.check.every import every_layout
from meshwright.check.sweep import Sweep
from meshwright.train.config.models import model_to_train
from meshwright.train.launch.pool import RankPool
from tests.check.cases import COMPLETE, failures, nano

pytestmark = pytest.mark.long


@pytest.mark.parametrize("model", COMPLETE)
def test_all_layouts_of_four_ranks_compute_what_one_process_computes(ranks: RankPool, model: str) -> None:
    case = nano(model)
    layouts = every_layout(case, model_to_train(case.model), 4)
    with Sweep(case, layouts, pool=ranks) as sweep:
        assert failures(sweep.run()) == []


@pytest.mark.parametrize("model", ["llama", "mixtral"])
def test_three_axes_on_eight_ranks_compute_what_one_process_computes(ranks8: RankPool, model: str) -> None:
    case = nano(model)
    layouts = [layout for layout in every_layout(case, model_to_train(case.model), 8) if layout.devices == 8]
    assert layouts
    with Sweep(case, layouts, pool=ranks8) as sweep:
        assert failures(sweep.run()) == []


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("model", ["tiny-llama", "tiny-mixtral"])
def test_presets_agree_within_the_promised_tolerances(ranks: RankPool, model: str, dtype: str) -> None:
    case = Case(model, dtype, seq_len=32, global_batch=16, steps=3)
    layouts = every_layout(case, model_to_train(model), 2)
    with Sweep(case, layouts, pool=ranks) as sweep:
        assert failures(sweep.run()) == []
