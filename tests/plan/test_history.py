"""Published runs: the catalogue's table, users' tables, and the runs nearest to a plan."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.catalog.run_files import read_runs_table
from meshwright.plan.history import device_class, list_runs, nearest_runs, read_runs, runs
from meshwright.plan.published import COLUMNS, PublishedRun, zero_stage_of
from meshwright.spec.cluster_text import parse_cluster
from meshwright.spec.errors import RequestError
from meshwright.spec.layout import Layout
from meshwright.spec.model_config import load_model
from meshwright.spec.workload import Workload

ROW = {
    "id": "mine-1",
    "gpu": "A100-SXM4-80GB",
    "gpus": "8",
    "layers": "32",
    "hidden": "4096",
    "heads": "32",
    "vocab": "32000",
    "seq_len": "4096",
    "dp": "8",
    "tp": "1",
    "pp": "1",
    "global_batch": "64",
}


def write(path: Path, *rows: dict[str, str]) -> Path:
    file = path / "runs.csv"
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return file


def published(run_id: str) -> PublishedRun:
    return next(run for run in runs() if run.id == run_id)


def test_the_catalogue_holds_2331_runs_with_their_sources_and_no_broken_cell() -> None:
    assert len(runs()) == len({run.id for run in runs()}) == 2331
    assert all(run.source_locator for run in runs())
    for run in runs():
        run.check()


def test_the_catalogue_has_exactly_the_columns_that_a_table_may_have() -> None:
    header, _ = read_runs_table()
    assert set(header) == COLUMNS
    assert len(header) == len(COLUMNS)


def test_degrees_multiply_to_the_devices_of_a_run() -> None:
    # Four rows of MLPerf and Megatron-Bridge leave a degree out; everything stated must multiply.
    for run in runs():
        degrees = [run.count(axis) for axis in ("dp", "tp", "pp", "cp")]
        if None not in degrees:
            product = 1
            for degree in degrees:
                product *= degree or 1
            assert product == run.devices, run.id


def test_step_seconds_of_korthikanti_table_5_are_the_papers() -> None:
    # arXiv:2205.05198 table 5, iteration time in seconds: full recomputation, then selective with sequence parallelism.
    paper = {1.42, 1.10, 18.13, 13.75, 49.05, 37.83, 94.42, 71.49}
    measured = {run.step_seconds for run in runs() if run.source == "korthikanti2022"}
    assert paper <= measured


def test_step_seconds_come_from_what_the_row_states() -> None:
    # 64 sequences × 4096 tokens on 8 devices at 4096 tokens/s each: 8 s. At 4 samples/s: 16 s.
    assert PublishedRun(2, ROW | {"step_time_s": "7.5", "samples_per_s": "4"}).step_seconds == 7.5
    assert PublishedRun(2, ROW | {"tokens_per_s_per_gpu": "4096", "samples_per_s": "4"}).step_seconds == 8.0
    assert PublishedRun(2, ROW | {"samples_per_s": "4"}).step_seconds == 16.0
    assert PublishedRun(2, ROW).step_seconds is None


@pytest.mark.parametrize(
    ("words", "stage"),
    [
        ("ZeRO-1 over 8 GPUs", 1),
        ("FSDP FULL_SHARD (ZeRO-3)", 3),
        ("FSDP (ZeRO-2 style: params not resharded after forward)", 2),
        ("DDP + distributed optimizer (FSDP=0)", 1),
        ("FSDP2 full shard over dp*cp", 3),
        ("DDP (no ZeRO)", 0),
        ("none (DP=1)", 0),
        ("", None),
    ],
)
def test_the_words_of_a_source_mean_a_zero_stage(words: str, stage: int | None) -> None:
    assert zero_stage_of(words) == stage


@pytest.mark.parametrize(
    ("name", "chip"),
    [
        ("A100-SXM4-80GB", "A100"),
        ("A100-40GB", "A100"),
        ("V100-SXM2-16GB", "V100"),
        ("H100-SXM-96GB-HBM2e-500W", "H100"),
        ("MI355X-288GB", "MI355X"),
        ("B200-SXM-180GB", "B200"),
        ("GB300", "GB300"),
        ("RTX-4090", "4090"),
        ("TPU-v5p", "TPU-V5P"),
    ],
)
def test_a_device_class_leaves_form_factor_and_memory_out(name: str, chip: str) -> None:
    assert device_class(name) == chip


def test_the_runs_nearest_to_7b_fsdp_on_8_a100_are_7b_zero3_runs_on_8_a100() -> None:
    layout = Layout(shard=8, zero_stage=3, micro_batch=2, recompute="full")
    found = nearest_runs(
        load_model("llama-2-7b"), parse_cluster("8xA100-40GB"), layout, Workload(seq_len=4096, global_batch=64)
    )
    assert len(found) == 3
    for run in found:
        assert device_class(run.device) == "A100"
        assert run.devices == 8
        assert 6e9 < run.parameters < 8e9
        assert run.zero_stage == 3


def test_the_nearest_run_to_a_published_run_is_that_run() -> None:
    # Table 5 of arXiv:2205.05198: 175B on 64 A100 by TP 8 and PP 8, full recomputation.
    wanted = next(
        run for run in runs() if run.source == "korthikanti2022" and run.devices == 64 and run.recompute == "full"
    )
    layout = Layout(tensor=8, pipeline=8, virtual_stages=3, schedule="interleaved1f1b", recompute="full")
    workload = Workload(seq_len=2048, global_batch=64)
    [found] = nearest_runs(load_model("gpt3-175b"), parse_cluster("64xA100-80GB"), layout, workload, k=1)
    assert found.id == wanted.id


def test_no_run_is_cited_for_a_device_that_nobody_published() -> None:
    known = parse_cluster("8xA100-40GB")
    cluster = replace(known, device=replace(known.device, name="Cerebras-9000"))
    assert (
        nearest_runs(load_model("llama-2-7b"), cluster, Layout(shard=8), Workload(seq_len=4096, global_batch=64)) == ()
    )


def test_a_listing_matches_model_and_device_in_any_spelling() -> None:
    found = list_runs("llama-3 8b", "h100")
    assert found
    assert all("llama" in run.model_name.lower() and "h100" in run.device.lower() for run in found)
    speeds = [run.tokens_per_second_per_device or 0 for run in found]
    assert speeds == sorted(speeds, reverse=True)


def test_a_table_of_the_required_columns_is_enough(tmp_path: Path) -> None:
    [run] = read_runs(write(tmp_path, ROW | {"step_time_s": "12.5"}))
    assert (run.id, run.devices, run.step_seconds, run.zero_stage) == ("mine-1", 8, 12.5, None)
    # 12 × 32 × 4096² + 32000 × 4096
    assert run.parameters == 6573522944


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"tp": "two"}, "Line 2, column tp: 'two' is not a whole number from 1."),
        ({"tp": "0"}, "Line 2, column tp: '0'"),
        ({"dp": "-8"}, "Line 2, column dp: '-8'"),
        ({"gpus": "8.5"}, "Line 2, column gpus: '8.5'"),
        ({"step_time_s": "nan"}, "Line 2, column step_time_s: 'nan' is not a number above 0."),
        ({"peak_mem_gib": "inf"}, "Line 2, column peak_mem_gib"),
        ({"peak_mem_gib": "40GB"}, "Line 2, column peak_mem_gib"),
        ({"gpus": ""}, "Line 2, column gpus: empty"),
        ({"recomptue": "full"}, "unknown column 'recomptue'. Legal: recompute"),
    ],
)
def test_a_broken_cell_is_refused_by_line_and_column(tmp_path: Path, change: dict[str, str], told: str) -> None:
    with pytest.raises(RequestError) as refused:
        read_runs(write(tmp_path, ROW | change))
    assert told in str(refused.value)


def test_missing_columns_are_all_named(tmp_path: Path) -> None:
    row = {column: cell for column, cell in ROW.items() if column not in ("tp", "gpu")}
    with pytest.raises(RequestError, match="lacks the columns gpu, tp"):
        read_runs(write(tmp_path, row))


def test_a_row_with_too_few_cells_is_refused_by_line(tmp_path: Path) -> None:
    file = write(tmp_path, ROW)
    file.write_text(file.read_text() + "mine-2,A100\n")
    with pytest.raises(RequestError, match="Line 3 has 2 cells, the header has 12 columns"):
        read_runs(file)


def test_an_id_that_comes_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="Line 3, column id: 'mine-1' stands on line 2 already"):
        read_runs(write(tmp_path, ROW, ROW))


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe\x00", b"\x00\x01", b'id,"gpu\n'])
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "runs.csv"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(RequestError, match=r"runs\.csv"):
        read_runs(file)


@given(st.dictionaries(st.sampled_from(sorted(COLUMNS)), st.text(max_size=12), max_size=6))
def test_any_cell_is_read_or_refused_but_never_crashes(change: dict[str, str]) -> None:
    run = PublishedRun(2, ROW | change)
    refusal = refusal_of(run)
    if refusal is None:
        assert run.devices >= 1
        assert run.step_seconds is None or run.step_seconds > 0
    else:
        assert "Line 2, column " in refusal


def refusal_of(run: PublishedRun) -> str | None:
    try:
        run.check()
    except RequestError as refused:
        return str(refused)
    return None
