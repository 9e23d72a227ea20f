"""The package as a whole: what it may import, what it ships, how it starts."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import meshwright

ROOT = Path(__file__).parent.parent


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "module",
    ["meshwright.plan.history", "meshwright.cli.frame", "meshwright.spec.cluster_text", "meshwright.cost.parameters"],
)
def test_importing_a_planning_module_imports_neither_torch_nor_pandas(module: str) -> None:
    code = f"import sys, {module}; print(sorted({{'torch', 'pandas', 'scipy'}} & set(sys.modules)))"
    assert python("-c", code).stdout.strip() == "[]"


def test_the_command_line_starts_without_numpy_and_rich() -> None:
    code = "import sys, meshwright.cli.frame as f; f.build_app(f.VERBS); print({'numpy', 'rich'} & set(sys.modules))"
    assert python("-c", code).stdout.strip() == "set()"


def test_python_dash_m_is_the_command() -> None:
    asked = python("-m", "meshwright", "--version")
    assert asked.returncode == 0
    assert asked.stdout == f"meshwright {meshwright.__version__}\n"


def test_the_base_install_needs_no_torch() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    base = {re.split(r"[<>=]", line)[0] for line in project["dependencies"]}
    assert base == {"numpy", "rich", "typer"}


def test_torch_is_a_range_for_users_and_one_version_for_development() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    constraints = (ROOT / "requirements" / "dev.txt").read_text()
    assert all("==" not in line for line in project["optional-dependencies"]["train"])
    assert re.search(r"^torch==[\d.]+$", constraints, re.MULTILINE)


def test_every_development_tool_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    pinned = set(re.findall(r"^([\w-]+)==", (ROOT / "requirements" / "dev.txt").read_text(), re.MULTILINE))
    assert {re.split(r"[<>=]", line)[0] for line in wanted} <= pinned


def test_the_latest_change_log_entry_is_unreleased_or_this_version() -> None:
    first = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first is not None
    assert first.group(1) in ("Unreleased", meshwright.__version__)
