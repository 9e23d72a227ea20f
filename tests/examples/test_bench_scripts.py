"""The five classic experiments name the layouts that a tutorial's reader would expect."""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from meshwright.bench import here
from meshwright.spec import parse_layout

EXAMPLES = Path(__file__).parents[2] / "examples"


def asked(monkeypatch: pytest.MonkeyPatch, script: str, *words: str, ranks: int) -> str:
    """The layout that a script names for so many ranks, micro-batch and all."""
    found: list[str] = []

    def note(options: argparse.Namespace, layout: Callable[[int], str]) -> None:
        named = layout(ranks)
        found.append(f"{named} mbs{options.micro_batch}")

    monkeypatch.setattr(here, "bench_here", note)
    monkeypatch.setattr(sys, "argv", [script, *words])
    runpy.run_path(str(EXAMPLES / script), run_name="__main__")
    return found[0]


@pytest.mark.parametrize(
    ("script", "words", "ranks", "layout"),
    [
        ("bench_ddp.py", "--model gpt_small --seq-len 2048 --global-batch 128 --precision fp16", 8, "ddp8 mbs1"),
        ("bench_fsdp.py", "--micro-batch 4", 8, "fsdp8 mbs4"),
        ("bench_fsdp.py", "--replicas 2", 8, "hsdp2x4 mbs1"),
        ("bench_zero.py", "--stage 2", 4, "zero2:4 mbs1"),
        ("bench_tp_fsdp.py", "--tp 4 --dp 2", 8, "fsdp2 tp4 mbs1"),
        # 128 sequences of one replica in 8 micro-batches, of two replicas in 4 each.
        ("bench_pp.py", "--pp 4 --micro-batches 8 --schedule 1f1b --global-batch 128", 4, "pp4:1f1b mbs16"),
        ("bench_pp.py", "--pp 2 --micro-batches 4 --global-batch 16", 4, "ddp2 pp2:1f1b mbs2"),
    ],
)
def test_a_script_runs_the_layout_that_its_options_say(
    script: str, words: str, ranks: int, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = asked(monkeypatch, script, *words.split(), ranks=ranks)
    assert named == layout
    assert parse_layout(named).devices == ranks


def test_micro_batches_that_do_not_divide_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        asked(monkeypatch, "bench_pp.py", "--micro-batches", "7", "--global-batch", "16", ranks=2)
    assert ended.value.code == 2
    assert "16 sequences are not 1 × 7 micro-batches" in capsys.readouterr().err
