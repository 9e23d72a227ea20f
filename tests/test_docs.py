"""What the documentation shows is what the program reads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from meshwright.cli.frame import VERBS
from meshwright.spec.cluster_text import parse_cluster
from meshwright.spec.notation import format_layout, parse_layout
from meshwright.spec.optimizer import state_bytes
from meshwright.spec.workload import IMPLEMENTATIONS, STATES, make_workload

ROOT = Path(__file__).parent.parent
LAYOUT_PAGE = (ROOT / "docs" / "layouts.md").read_text()
TOKENS = [
    token for row in re.findall(r"^\| (`.*?) \|", LAYOUT_PAGE, re.MULTILINE) for token in re.findall(r"`(.*?)`", row)
]


@pytest.mark.parametrize("token", TOKENS)
def test_every_documented_token_is_read_and_printed_back(token: str) -> None:
    around = {"ep": "fsdp8", "stages:": "pp4", "quant": "fsdp8", "hpz": "fsdp16", "offload": "fsdp8"}
    text = " ".join([token, *(base for head, base in around.items() if token.startswith(head))])
    layout = parse_layout(text)
    assert parse_layout(format_layout(layout)) == layout


def test_the_documented_example_takes_64_devices() -> None:
    assert parse_layout("fsdp8 tp4 pp2:1f1b mbs2 ac:selective").devices == 64


def test_every_documented_cluster_file_is_read() -> None:
    blocks = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "clusters.md").read_text(), re.DOTALL)
    assert [parse_cluster(block).devices for block in blocks] == [32, 8]


def test_the_readme_names_every_verb() -> None:
    readme = (ROOT / "README.md").read_text()
    assert all(f"`{verb}`" in readme or f"`meshwright {verb}" in readme for verb in VERBS)


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]
)
def test_files_that_a_page_names_are_there(page: str) -> None:
    named = set(re.findall(r"`((?:src|docs|requirements|tests|\.ci)/[\w./-]+)`", (ROOT / page).read_text()))
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(
    "path",
    [
        *(p for p in (ROOT / "src").rglob("*") if p.suffix in (".py", ".toml")),
        *(ROOT / "docs").glob("*.md"),
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
    ],
    ids=lambda path: path.name,
)
def test_no_verb_is_named_that_does_not_exist(path: Path) -> None:
    assert set(re.findall(r"`meshwright ([a-z]+)", path.read_text())) <= set(VERBS)


def test_every_class_of_software_and_state_regime_is_explained() -> None:
    page = (ROOT / "docs" / "software.md").read_text()
    named = set(re.findall(r"^\| `([\w-]+)`", page, re.MULTILINE))
    assert named == {*IMPLEMENTATIONS, *STATES}


@pytest.mark.parametrize("states", STATES)
def test_the_documented_state_bytes_are_those_that_are_priced(states: str) -> None:
    page = (ROOT / "docs" / "software.md").read_text()
    row = re.search(rf"^\| `{states}`.*?\| ([\d +]+) = (\d+) \|", page, re.MULTILINE)
    assert row is not None
    priced = state_bytes(make_workload(1024, 8, states=states))
    kinds = (priced.parameter, priced.gradient, priced.main_gradient, priced.master, priced.moments)
    assert [float(part) for part in row[1].split("+")] == list(kinds)
    assert float(row[2]) == priced.total


@pytest.mark.parametrize("name", ["implementation", "states"])
def test_the_documented_defaults_are_the_defaults(name: str) -> None:
    default = getattr(make_workload(1024, 8), name)
    assert f"| `{default}` (default) |" in (ROOT / "docs" / "software.md").read_text()
