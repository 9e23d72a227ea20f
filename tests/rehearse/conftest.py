"""Rehearsals are forked from a process that has imported all they need."""

from __future__ import annotations

import pytest

from meshwright.rehearse.session import import_all


@pytest.fixture(scope="session", autouse=True)
def imported() -> None:
    import_all()
