"""What loads before a rehearsal: no more than it needs."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import meshwright.rehearse.assumptions, meshwright.rehearse.compare, meshwright.rehearse.session", "torch"),
        ("from meshwright.rehearse.session import import_all; import_all()", "torch.distributed.checkpoint"),
    ],
    ids=["around it", "the rehearsal"],
)
def test_what_a_rehearsal_does_not_need_is_not_loaded(code: str, absent: str) -> None:
    asked = f"{code}; import sys; print({absent!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout == "False\n"
