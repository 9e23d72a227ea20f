from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from meshwright.catalog.software_files import HERE
from meshwright.plan.constants_file import devices_of, merged, save_fit, write_constants
from meshwright.plan.fit import Fit, FitError, fit, main, report, row_weights
from meshwright.plan.free_constants import DEFAULT, DEVICE, IMPLEMENTATION, FreeConstant, FreeTable, read_free_constants
from meshwright.plan.history import runs
from meshwright.plan.pricing import price, read_nouns
from meshwright.plan.published import PublishedRun
from meshwright.plan.residuals import TIME, residuals
from meshwright.plan.run_nouns import RunNouns, nouns_of_run
from meshwright.spec.errors import RequestError
from meshwright.spec.implementation import implementations
from meshwright.spec.units import GIB

from .runs_by_hand import made_run

MATMUL = FreeConstant(DEVICE, "A100", "matmul", 0.5, 0.3, 0.95)
MEMORY = FreeConstant(DEVICE, "A100", "memory", 0.9, 0.4, 1.0)
LOGITS = FreeConstant(IMPLEMENTATION, "eager", "logits_bytes", 20.0, 2.0, 30.0)
H100 = FreeConstant(DEVICE, "H100", "matmul", 0.5, 0.3, 0.95)
TRUTH = {MATMUL: 0.71, MEMORY: 0.63, LOGITS: 7.5}
"""What the measurements below were made with."""


def under_truth(nouns: RunNouns) -> RunNouns:
    device = nouns.cluster.device
    reached = replace(device.efficiency, matmul=TRUTH[MATMUL], memory=TRUTH[MEMORY])
    return replace(nouns, cluster=replace(nouns.cluster, device=replace(device, efficiency=reached)))


def measured(run: PublishedRun) -> PublishedRun:
    """The run as it would be measured if the constants of TRUTH were the world's."""
    nouns = nouns_of_run(run)
    classes = implementations()
    name = nouns.workload.implementation
    software = {**classes, name: replace(classes[name], logits_bytes=TRUTH[LOGITS])}
    (priced,) = price([(run, under_truth(nouns))], software)
    cells = {"step_time_s": repr(priced.step_seconds), "peak_mem_gib": repr(priced.peak_bytes / GIB)}
    return PublishedRun(1, {**run.row, **cells})


@pytest.fixture(scope="module")
def world() -> list[PublishedRun]:
    sizes = [(24, 2048, 16), (32, 4096, 32), (12, 1024, 16)]
    return [
        measured(
            made_run(
                f"{layers}-{batch}",
                layers=layers,
                hidden=hidden,
                heads=heads,
                microbatch=batch,
                global_batch=64 * batch,
                vocab=256000,
            )
        )
        for layers, hidden, heads in sizes
        for batch in (1, 4)
    ]


def values_of(result: Fit) -> Mapping[str, float]:
    return {str(constant): value for constant, value in result.values.items()}


def test_a_fit_finds_the_constants_that_made_the_measurements(world: list[PublishedRun]) -> None:
    result = fit(world, FreeTable((MATMUL, MEMORY, LOGITS), {}))
    for constant, value in TRUTH.items():
        assert result.values[constant] == pytest.approx(value, rel=5e-3)
    assert result.at_bounds == ()
    assert result.errors["time"][0] > 0.05
    assert result.errors["time"][1] < 1e-3
    assert result.errors["memory"][1] < 1e-3


def test_validate_rows_cannot_move_a_constant(world: list[PublishedRun]) -> None:
    table = FreeTable((MATMUL, MEMORY, LOGITS), {})
    poison = {"role": "validate", "step_time_s": "1e6", "peak_mem_gib": "1e6"}
    poisoned = [PublishedRun(1, {**run.row, **poison}) for run in world]
    assert fit([*poisoned, *world, *poisoned], table).values == fit(world, table).values


def test_rows_of_no_role_cannot_move_a_constant(world: list[PublishedRun]) -> None:
    strangers = [PublishedRun(1, {**run.row, "role": "", "step_time_s": "1e6"}) for run in world]
    with pytest.raises(FitError, match="No row with role fit"):
        fit(strangers, FreeTable((MATMUL,), {}))


def test_one_sick_row_hardly_moves_a_constant(world: list[PublishedRun]) -> None:
    sick = PublishedRun(1, {**world[0].row, "step_time_s": str(20 * float(world[0].text("step_time_s")))})
    healthy, disturbed = (fit(rows, FreeTable((MATMUL,), {})).values[MATMUL] for rows in (world, [*world, sick]))
    # a plain mean over seven logarithms would move by ln(20)/7, a third
    assert disturbed == pytest.approx(healthy, rel=0.1)


def test_constants_on_which_no_row_depends_are_left_alone(world: list[PublishedRun]) -> None:
    result = fit(world, FreeTable((MATMUL, H100), {}))
    assert result.idle == (H100,)
    assert H100 not in result.values
    assert "device.H100.matmul" in report(result)


def test_a_constant_that_wants_beyond_its_bounds_is_named(world: list[PublishedRun]) -> None:
    tight = replace(MATMUL, start=0.4, high=0.5)
    result = fit(world, FreeTable((tight,), {}))
    assert result.at_bounds == (tight,)
    assert result.values[tight] <= tight.high


def test_a_fit_without_scipy_says_what_to_install(world: list[PublishedRun], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(FitError, match="pip install scipy"):
        fit(world, FreeTable((MATMUL,), {}))


def test_derivatives_price_only_what_a_constant_touches_and_agree_with_pricing_everything() -> None:
    chosen = [run for run in runs() if run.text("role") == "fit" and run.step_seconds][::12]
    read, _ = read_nouns(chosen)
    eager = FreeConstant(IMPLEMENTATION, "eager", "elementwise", 1.5, 1.0, 3.0)
    constants = (MATMUL, H100, eager)
    of_rows = residuals(TIME, [nouns for _, nouns in read], [run.step_seconds or 0 for run, _ in read], constants)
    start = np.array([constant.start for constant in constants])
    slopes = of_rows.jacobian(start)
    for column, step in enumerate((1e-4, 1e-4, 1e-3)):
        moved = start.copy()
        moved[column] += step
        whole = (of_rows.at(moved) - of_rows.at(start)) / step
        np.testing.assert_allclose(slopes[:, column], whole, rtol=0.02, atol=1e-6)
    on_a100 = np.array(["A100" in nouns.cluster.device.name for _, nouns in read])
    assert on_a100.any()
    assert not slopes[~on_a100, 0].any()


def test_the_default_moves_only_devices_without_a_constant_of_their_own() -> None:
    nouns = [nouns_of_run(made_run("a")), nouns_of_run(made_run("b", gpu="MI300X"))]
    default = replace(MATMUL, owner=DEFAULT)
    of_rows = residuals(TIME, nouns, [1.0, 1.0], (MATMUL, default))
    slopes = of_rows.jacobian(np.array([0.5, 0.5]))
    assert slopes[0, 0] < 0
    assert slopes[0, 1] == 0
    assert slopes[1, 0] == 0


def test_a_source_weighs_the_same_however_many_rows_it_has() -> None:
    made = [made_run("a", source="one"), *(made_run(str(i), source="two") for i in range(3))]
    weights = row_weights([(run, nouns_of_run(run)) for run in made], {"two": 0.5})
    assert weights[0] == 1.0
    assert weights[1:].sum() == pytest.approx(0.5)


def test_rows_on_several_nodes_can_have_a_weight_of_their_own() -> None:
    made = [made_run("a"), made_run("b"), made_run("c", gpus=16, dp=16)]
    pairs = [(run, nouns_of_run(run)) for run in made]
    assert row_weights(pairs, {"by-hand multi-node": 3.0}).tolist() == [0.5, 0.5, 3.0]


def test_the_table_of_free_constants_names_only_what_exists() -> None:
    table = read_free_constants()
    sources = {run.source for run in runs()}
    assert table.constants
    assert all(devices_of(c.owner) for c in table.constants if c.kind == DEVICE)
    assert all(key.removesuffix(" multi-node").removesuffix(" single-node") in sources for key in table.weights)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[device.A100]\nmatmull = [1, 0, 2]", "unknown constant 'matmull'"),
        ("[device.A100]\nmatmul = [3, 0, 2]", r"device\.A100\.matmul"),
        ("[device.A100]\nmatmul = [1, 1, 1]", "low < high"),
        ("[device.A100]\nmatmul = 0.5", "start, low, high"),
        ("[device.A100]\nmatmul = ['a', 'b', 'c']", "start, low, high"),
        ("[implementation.fusde]\nelementwise = [1, 0, 2]", "'fusde'"),
        ("[implementation.fused]\nname = [1, 0, 2]", "unknown constant 'name'"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "free.toml"
    path.write_text(text)
    with pytest.raises(RequestError, match=message):
        read_free_constants(path)


def test_what_is_written_reads_back_sorted_with_four_digits(tmp_path: Path) -> None:
    path = tmp_path / "constants.toml"
    tables = {"b": {"y": 0.123456, "x": 8.0}, "A100-80GB": {"flag": True, "tiny": 1.23456e-5, "big": 1610612736.0}}
    write_constants(path, tables, "What it is.\n\nWhence.")
    text = path.read_text()
    assert text.startswith("# What it is.\n#\n# Whence.\n")
    assert tomllib.loads(text) == {
        "A100-80GB": {"flag": True, "tiny": 1.235e-5, "big": 1.611e9},
        "b": {"x": 8.0, "y": 0.1235},
    }
    assert text.index("A100-80GB") < text.index("[b]") < text.index("\nx = ") < text.index("\ny = ")
    assert list(tmp_path.iterdir()) == [path]


def test_fitted_values_replace_their_like_and_nothing_else() -> None:
    old = {"one": {"a": 1.0, "b": 2.0}, "two": {"c": True}}
    assert merged(old, {"one": {"b": 3.0}, "new": {"d": 4.0}}) == {
        "new": {"d": 4.0},
        "one": {"a": 1.0, "b": 3.0},
        "two": {"c": True},
    }


def test_a_fit_is_written_for_every_device_of_the_chip(tmp_path: Path) -> None:
    efficiency, software = save_fit({MATMUL: 0.7123456, LOGITS: 7.5}, "Made by a test.", tmp_path)
    tables = tomllib.loads(efficiency.read_text())
    assert {name for name in tables if "A100" in name} >= {"A100-40GB", "A100-80GB"}
    assert all(tables[name]["matmul"] == 0.7123 for name in tables if name.startswith("A100"))
    assert tomllib.loads(software.read_text())["eager"]["logits_bytes"] == 7.5
    assert "# Made by a test." in efficiency.read_text()
    assert set(tomllib.loads((HERE / "implementations.toml").read_text())) == set(tomllib.loads(software.read_text()))


def test_the_command_refuses_a_table_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--runs", str(tmp_path / "none.csv"), "--dry-run"]) == 2
    assert "none.csv" in capsys.readouterr().err
