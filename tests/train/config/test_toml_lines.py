"""The line of a key in a TOML file, in every way of writing it."""

from __future__ import annotations

import pytest

from meshwright.train.config.toml_lines import line_of

TEXT = '''# model = "not here"
model = "a = b"
note = """
seed = 1
[train]
"""
train.steps = 3
launch = { ranks = 2, "backend" = "gloo" }

[ "data" ]  # steps = 9
source = [
  "a",
  "steps = 3",
]

[optimizer]
'lr' = 1e-3
weight_decay=0.1
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("model",), 2),
        (("train", "steps"), 7),
        (("train",), 7),
        (("launch", "ranks"), 8),
        (("launch", "backend"), 8),
        (("data",), 10),
        (("data", "source"), 11),
        (("optimizer", "lr"), 17),
        (("optimizer", "weight_decay"), 18),
        (("seed",), None),
        (("steps",), None),
    ],
)
def test_a_key_stands_on_the_line_where_it_is_written(path: tuple[str, ...], line: int | None) -> None:
    assert line_of(TEXT, path) == line
