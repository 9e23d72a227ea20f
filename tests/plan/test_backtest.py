"""The backtest against an independent scorer of its row file: other code, other rules of reading, the same figures."""

from __future__ import annotations

import csv
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshwright.catalog.run_files import FILE
from meshwright.plan.backtest import Backtest, backtest, write_prices
from meshwright.plan.history import runs
from meshwright.spec.errors import RequestError

from .runs_by_hand import made_run, priced_run

Rows = dict[str, dict[str, str]]
JOB = "source params_b hidden layers seq_len gpu gpus global_batch precision attention".split()


@pytest.fixture(scope="module")
def result() -> Backtest:
    return backtest(runs())


@pytest.fixture(scope="module")
def prices(result: Backtest, tmp_path_factory: pytest.TempPathFactory) -> Rows:
    path = tmp_path_factory.mktemp("backtest") / "prices.csv"
    write_prices(path, result.priced)
    return read(path)


@pytest.fixture(scope="module")
def counted(prices: Rows) -> list[tuple[dict[str, str], dict[str, str]]]:
    """Catalogue row and price of what counts: recomputation known, or Ultra-Scale's, which recomputes nothing."""
    return [
        (row, prices[name])
        for name, row in read(FILE).items()
        if name in prices and (row["recompute_known"] == "y" or row["source"] == "ultrascale")
    ]


def read(path: Path) -> Rows:
    with path.open(encoding="utf-8", newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def seconds(row: dict[str, str]) -> float | None:
    if row["step_time_s"]:
        return float(row["step_time_s"])
    if not row["global_batch"]:
        return None
    batch = float(row["global_batch"])
    if row["tokens_per_s_per_gpu"]:
        return batch * float(row["seq_len"]) / float(row["tokens_per_s_per_gpu"]) / float(row["gpus"])
    return batch / float(row["samples_per_s"]) if row["samples_per_s"] else None


def timed(
    counted: list[tuple[dict[str, str], dict[str, str]]],
) -> Iterator[tuple[dict[str, str], float, float]]:
    for row, price in counted:
        measured = seconds(row)
        if measured and row["time_ok"] == "y":
            yield row, measured, float(price["predicted_step_seconds"])


def test_time_errors_are_the_independent_scorers(result: Backtest, counted: list) -> None:
    errors = defaultdict(list)
    for row, measured, price in timed(counted):
        errors[row["source"]].append(price / measured - 1)
    assert errors.keys() == result.scores.sources.keys()
    for source, found in errors.items():
        score = result.scores.sources[source]
        assert score.rows == len(found)
        assert score.mape == pytest.approx(statistics.fmean(map(abs, found)))
        assert score.median == pytest.approx(statistics.median(map(abs, found)))
        assert score.bias == pytest.approx(statistics.fmean(found))


def test_memory_errors_are_the_independent_scorers(result: Backtest, counted: list) -> None:
    errors = defaultdict(list)
    for row, price in counted:
        if row["peak_mem_gib"]:
            errors[row["source"]].append(float(price["predicted_peak_gib"]) / float(row["peak_mem_gib"]) - 1)
    assert {source: len(found) for source, found in errors.items()} == {
        source: score.rows for source, score in result.scores.memory.items()
    }
    for source, found in errors.items():
        assert result.scores.memory[source].median == pytest.approx(statistics.median(map(abs, found)))
        assert result.scores.memory[source].bias == pytest.approx(statistics.fmean(found))


def test_verdicts_are_counted_as_the_independent_scorer_counts_them(result: Backtest, counted: list) -> None:
    for cell, happened in (("y", "out of memory"), ("n", "ran")):
        said = Counter(price["verdict"] for row, price in counted if row["oom"] == cell)
        assert result.scores.verdicts[happened] == said
        assert said


def test_regret_is_the_independent_scorers(result: Backtest, counted: list) -> None:
    jobs = defaultdict(list)
    for row, measured, price in timed(counted):
        if row["source"] != "ultrascale":
            jobs[tuple(row[column] for column in JOB)].append((price, measured))
    regrets = {}
    for key, members in jobs.items():
        if len(members) >= 6:
            best = min(measured for _, measured in members)
            regrets[key] = (len(members), 1 - best / min(members, key=lambda pair: pair[0])[1])
    found = {tuple(group.key.values()): (group.rows, group.regret) for group in result.groups}
    assert found.keys() == regrets.keys()
    for key, (rows, regret) in regrets.items():
        assert found[key] == (rows, pytest.approx(regret))


def test_every_row_of_the_catalogue_has_a_price_or_a_reason(result: Backtest) -> None:
    assert result.rows == len(runs())
    names = [row.run.id for row in result.priced] + [row.run.id for row in result.unpriced]
    assert len(names) == len(set(names))
    assert all(row.reason for row in result.unpriced)
    assert len(result.scored) + sum(result.unscored.values()) == len(result.priced)


def test_the_row_file_holds_every_price(result: Backtest, prices: Rows) -> None:
    assert len(prices) == len(result.priced)
    for row in result.priced:
        written = prices[row.run.id]
        assert float(written["predicted_step_seconds"]) == row.step_seconds
        assert float(written["predicted_peak_gib"]) == row.peak_bytes / 2**30
        assert written["verdict"] == row.verdict


def test_headlines_cover_the_rows_that_other_tools_are_measured_on(result: Backtest) -> None:
    rows = {(headline.name, headline.quantity): headline.score.rows for headline in result.headlines}
    # Korthikanti et al. 2022 publish eight times in table 5; the other counts are the catalogue's validate rows.
    assert rows == {
        ("Korthikanti 2022, table 5", "time"): 8,
        ("vTrain, multi-node", "time"): 39,
        ("vTrain, single-node", "time"): 560,
        ("Ultra-Scale", "time"): 119,
        ("Ultra-Scale", "memory"): pytest.approx(488, abs=2),
    }


def test_roles_split_the_scored_rows(result: Backtest) -> None:
    by_role = Counter(row.run.text("role") for row in result.scored)
    assert {role: scores.rows for role, scores in result.by_role.items()} == by_role


def test_a_run_whose_recomputation_is_unknown_is_priced_and_counted_apart() -> None:
    known, unknown = made_run("known"), made_run("unknown", recompute_known="n")
    found = backtest([known, unknown])
    assert [row.run.id for row in found.priced] == ["known", "unknown"]
    assert [row.run.id for row in found.scored] == ["known"]
    assert found.unscored == {"by-hand": 1}
    assert len(backtest([known, unknown], all_rows=True).scored) == 2


def test_a_file_that_cannot_be_written_is_refused_and_nothing_is_left_behind(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(RequestError, match=r"folder\.csv cannot be written"):
        write_prices(tmp_path / "folder.csv", [priced_run("a", 1.0)])
    assert [path.name for path in tmp_path.iterdir()] == ["folder.csv"]
    with pytest.raises(RequestError, match="cannot be written"):
        write_prices(tmp_path / "absent" / "prices.csv", [priced_run("a", 1.0)])


def test_a_row_file_takes_the_place_of_an_old_one(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text("old")
    write_prices(path, [priced_run("a", 1.25, gib=3.0)])
    assert path.read_text().splitlines() == ["id,predicted_step_seconds,predicted_peak_gib,verdict", "a,1.25,3.0,fits"]
    assert list(tmp_path.iterdir()) == [path]
