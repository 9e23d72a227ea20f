"""The catalogue's figures against data sheets, and its own consistency."""

from __future__ import annotations

import pytest

from meshwright.catalog.cluster_files import device_tables, link_tables
from meshwright.spec.cluster import Efficiency
from meshwright.spec.cluster_catalog import efficiencies, links, presets
from meshwright.spec.errors import ClusterError

DATA_SHEETS = {
    # device: GB on the box, GB/s, dense fp16 TFLOP/s, fast link GB/s both directions together
    "V100-32GB": (32, 900, 125, 300),
    "A100-40GB": (40, 1555, 312, 600),
    "A100-80GB": (80, 2039, 312, 600),
    "A800": (80, 2039, 312, 400),
    "H100": (80, 3350, 989, 900),
    "H800": (80, 3350, 989, 400),
    "H200": (141, 4800, 989, 900),
    "H20": (96, 4000, 148, 900),
    "B200": (180, 7700, 2250, 1800),
    "GB200": (186, 8000, 2500, 1800),
    "GB300": (279, 8000, 2500, 1800),
    "MI300X": (192, 5300, 1307, 896),
    "MI325X": (256, 6000, 1307, 896),
    "MI355X": (288, 8000, 2517, 1075),
}


@pytest.mark.parametrize("name", DATA_SHEETS)
def test_figures_are_the_data_sheet_s(name: str) -> None:
    box, bandwidth, tflops, both_ways = DATA_SHEETS[name]
    preset = presets()[name]
    assert 0.93 * box * 1e9 <= preset.device.memory_bytes <= 1.075 * box * 1e9  # AMD counts in GiB
    assert preset.device.memory_bytes_per_s == pytest.approx(bandwidth * 1e9, rel=0.01)
    assert preset.device.peak_flops["fp16"] == pytest.approx(tflops * 1e12, rel=0.01)
    assert 2 * links()[preset.intra].bytes_per_s == pytest.approx(both_ways * 1e9, rel=0.01)


@pytest.mark.parametrize("name", presets())
def test_narrower_numbers_are_never_slower(name: str) -> None:
    peaks = presets()[name].device.peak_flops
    if name != "cpu":  # no narrow arithmetic without special instructions
        order = [peaks[precision] for precision in ("fp32", "tf32", "bf16", "fp8", "fp4") if precision in peaks]
        assert order == sorted(order)


def test_volta_has_no_bf16_and_ampere_no_fp8() -> None:
    assert "bf16" not in presets()["V100-32GB"].device.peak_flops
    assert "fp8" not in presets()["A100-80GB"].device.peak_flops
    assert "fp4" not in presets()["H100"].device.peak_flops


def test_every_figure_has_a_source() -> None:
    tables = [
        *device_tables()["devices"].values(),
        *device_tables()["hosts"].values(),
        *link_tables()["links"].values(),
    ]
    assert all(len(table["source"]) > 10 for table in tables)


def test_every_link_stands_where_its_tier_says() -> None:
    tiers = {name: table["tier"] for name, table in link_tables()["links"].items()}
    for preset in presets().values():
        assert tiers[preset.intra] == "intra"
        assert tiers[preset.host.nic] == "inter"
        assert tiers[preset.host.link] == "host"


def test_racks_and_pods_are_nodes() -> None:
    sizes = {
        name: presets()[name].devices_per_node for name in ("GB200", "GB300", "TPU-v4", "TPU-v5e", "H100", "Trainium2")
    }
    assert sizes == {"GB200": 72, "GB300": 72, "TPU-v4": 4096, "TPU-v5e": 256, "H100": 8, "Trainium2": 16}


def test_no_two_devices_share_a_spelling() -> None:
    spellings = [
        frozenset(alias.lower().split("-"))
        for name, table in device_tables()["devices"].items()
        for alias in (name, *table.get("aliases", ()))
    ]
    assert len(spellings) == len(set(spellings))


def test_a_device_s_constants_stand_over_the_default_s_over_the_class_s() -> None:
    tables = {"default": {"matmul": 0.7, "link": 0.9}, "H100": {"matmul": 0.6}}
    found = efficiencies(tables, ["H100", "H200"])
    assert (found["H100"].matmul, found["H100"].link, found["H100"].memory) == (0.6, 0.9, Efficiency().memory)
    assert found["H200"].matmul == 0.7


@pytest.mark.parametrize(
    ("tables", "legal"),
    [
        ({"H100": {"matmull": 0.7}}, "matmul"),
        ({"H1000": {"matmul": 0.7}}, "H100"),
        ({"default": {"links": 1.0}}, "link"),
    ],
)
def test_an_unknown_constant_or_device_is_an_error(tables: dict[str, dict[str, float]], legal: str) -> None:
    with pytest.raises(ClusterError) as error:
        efficiencies(tables, ["H100"])
    assert legal in error.value.legal


def test_a_constant_must_be_a_number() -> None:
    with pytest.raises(ClusterError, match="must be a number"):
        efficiencies({"default": {"matmul": "high"}}, ["H100"])
