"""What each mode sends in a step, as text files beside this one: a change of a mode's traffic shows in review.

A file that is missing is written; to accept a change, delete the file and run the test again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright.rehearse.session import rehearse_ranks
from tests.rehearse.real import job_of

GOLDEN = Path(__file__).with_name("golden")
CASES = [
    ("tiny-gpt2", "ddp4", 8),
    ("tiny-gpt2", "zero1:4", 8),
    ("tiny-gpt2", "zero2:4", 8),
    ("tiny-gpt2", "fsdp4", 8),
    ("tiny-gpt2", "hsdp2x2", 8),
    ("tiny-gpt2", "tp2", 2),
    ("tiny-gpt2", "tp2:nosp", 2),
    ("tiny-gpt2", "cp2:ring", 2),
    ("tiny-gpt2", "cp2:ulysses", 2),
    ("tiny-gpt2", "cp2:allgather", 2),
    ("tiny-gpt2", "pp2:1f1b", 4),
    ("tiny-gpt2", "pp2:zbvzerobubble", 4),
    ("tiny-mixtral", "ddp2 ep2", 4),
    ("tiny-mixtral", "fsdp2 tp2", 4),
]


@pytest.mark.parametrize(("model", "layout", "batch"), CASES, ids=lambda value: str(value).replace(" ", "-"))
def test_a_mode_sends_what_its_file_says(model: str, layout: str, batch: int) -> None:
    (found,) = rehearse_ranks(job_of(model, layout, 64, batch, "bf16"), [0])
    rows = sorted((row.axis, row.collective, row.count, round(row.bytes)) for row in found.traffic)
    text = f"# {model}, {layout}, {batch} sequences of 64 tokens, bf16, rank 0: axis, collective, count, bytes sent\n"
    text += "".join(f"{axis:<16} {name:<16} {count:>6} {size:>12}\n" for axis, name, count, size in rows)
    name = layout.replace(" ", "-").replace(":", "-")
    path = GOLDEN / f"{model}-{name}.txt"
    if not path.exists():
        path.write_text(text, encoding="utf-8")
        pytest.fail(f"{path} was missing and is written now: look at it.")
    assert text == path.read_text(encoding="utf-8")
