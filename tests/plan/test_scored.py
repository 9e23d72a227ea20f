from __future__ import annotations

import pytest

from meshwright.plan.published import PublishedRun
from meshwright.plan.scored import is_scored, select_runs
from meshwright.spec.errors import RequestError

from .runs_by_hand import made_run

RUNS = (
    made_run("a", source="one", gpu="A100-80GB", role="fit"),
    made_run("b", source="one", gpu="H100", role="validate"),
    made_run("c", source="two", gpu="H100", role="validate"),
)


def ids(runs: tuple[PublishedRun, ...]) -> list[str]:
    return [run.id for run in runs]


def test_runs_are_chosen_by_source_device_and_role_together() -> None:
    assert ids(select_runs(RUNS)) == ["a", "b", "c"]
    assert ids(select_runs(RUNS, source="one")) == ["a", "b"]
    assert ids(select_runs(RUNS, device="h100")) == ["b", "c"]
    assert ids(select_runs(RUNS, source="one", role="validate")) == ["b"]


def test_a_source_that_nothing_comes_from_is_refused_with_those_that_exist() -> None:
    with pytest.raises(RequestError, match="source 'onne'") as error:
        select_runs(RUNS, source="onne")
    assert "one" in error.value.legal
    with pytest.raises(RequestError, match="device 'V100'"):
        select_runs(RUNS, device="V100")
    with pytest.raises(RequestError, match="role 'fit'"):
        select_runs(RUNS, source="two", role="fit")


def test_a_run_counts_if_it_is_known_what_it_recomputed() -> None:
    assert is_scored(made_run("a", recompute_known="y"))
    assert not is_scored(made_run("a", recompute_known="n"))
    assert is_scored(made_run("a", recompute_known="n", source="ultrascale"))


def test_a_table_without_the_column_is_taken_at_its_word() -> None:
    cells = {name: cell for name, cell in made_run("a", recompute="full").row.items() if name != "recompute_known"}
    assert is_scored(PublishedRun(1, cells))
    assert not is_scored(PublishedRun(1, cells | {"recompute": ""}))
