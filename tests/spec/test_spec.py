"""The package's table of contents."""

from __future__ import annotations

import subprocess
import sys

import pytest

import meshwright.spec


@pytest.mark.parametrize("name", meshwright.spec.__all__)
def test_every_listed_name_is_there(name: str) -> None:
    assert getattr(meshwright.spec, name).__name__ == name


def test_an_unlisted_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        _ = meshwright.spec.nonsense


def test_reading_the_nouns_needs_no_numpy() -> None:
    code = "import sys, meshwright.spec, meshwright.spec.model; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
