"""Whatever is typed, the answer is a cluster or a ClusterError."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.spec.cluster import Cluster
from meshwright.spec.cluster_catalog import presets
from meshwright.spec.cluster_read import DEVICE, LINK, PRECISIONS, TOP, cluster_from
from meshwright.spec.cluster_text import parse_cluster, to_toml
from meshwright.spec.cluster_toml import read_toml
from meshwright.spec.errors import ClusterError

PIECES = st.one_of(
    st.sampled_from(
        ["8", "0", "-1", "2.5", "1e9", "nan", "x", "×", "*", " ", "_", "-", "80GB", "sxm", ".toml", "\n", "/"]
    ),
    st.sampled_from([*presets(), "A100", "100", "Gbps", "GB/s", "gb/s", "IB", "ib-hdr", "NVLink", "GiB", "="]),
    st.text(max_size=4),
)
TEXTS = st.one_of(st.text(max_size=40), st.lists(PIECES, max_size=6).map("".join))
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "inter_node": TEXTS,
        "intra_node": TEXTS,
        "device_memory": TEXTS,
        "devices_per_node": st.integers(-2, 100),
        "nics_per_node": st.floats(),
    },
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXTS, st.just(10**400)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(sorted(LINK)), inner, max_size=4)
    ),
    max_leaves=4,
)
DEVICES = st.dictionaries(st.sampled_from(sorted(DEVICE)), st.one_of(VALUES, st.just("H100")), max_size=5) | st.just(
    {"preset": "H100", "peak_flops": dict.fromkeys(PRECISIONS, 1e12)}
)
TABLES = st.dictionaries(st.sampled_from([*sorted(TOP), "odd"]), VALUES, max_size=5)


def is_sound(cluster: Cluster) -> bool:
    return (
        cluster.nodes >= 1
        and cluster.devices_per_node >= 1
        and 0 < cluster.nics_per_node < float("inf")
        and all(0 < link.bytes_per_s < float("inf") for link in (cluster.intra, cluster.inter, cluster.host_link))
        and 0 < cluster.device.memory_bytes < float("inf")
    )


def answer(read: Callable[..., Cluster], *args: Any, **options: Any) -> Cluster | None:
    """What was read, or None for a ClusterError of a bearable length; anything else escapes."""
    try:
        return read(*args, **options)
    except ClusterError as error:
        return None if 0 < len(str(error)) < 3000 else pytest.fail(str(error))


@given(TEXTS, OPTIONS)
def test_any_text_is_a_cluster_or_a_cluster_error(text: str, options: dict[str, Any]) -> None:
    cluster = answer(parse_cluster, text, **options)
    assert cluster is None or (is_sound(cluster) and read_toml(to_toml(cluster)) == cluster)


@given(st.sampled_from(["16xH100", "cpu", "2x4xA100"]), OPTIONS)
def test_any_options_are_a_cluster_or_a_cluster_error(text: str, options: dict[str, Any]) -> None:
    cluster = answer(parse_cluster, text, **options)
    assert cluster is None or is_sound(cluster)


@given(TABLES, st.one_of(DEVICES, st.just("H100"), VALUES))
def test_any_tables_are_a_cluster_or_a_cluster_error(table: dict[str, Any], device: Any) -> None:
    cluster = answer(cluster_from, {**table, "device": device}, "fuzz.toml")
    assert cluster is None or is_sound(cluster)


SOUND = to_toml(parse_cluster("16xA100", inter_node="100Gbps"))


@given(st.integers(0, len(SOUND)), st.integers(0, 40), st.text(max_size=6))
def test_any_damage_to_a_file_is_a_cluster_or_a_cluster_error(start: int, length: int, patch: str) -> None:
    cluster = answer(read_toml, SOUND[:start] + patch + SOUND[start + length :])
    assert cluster is None or is_sound(cluster)
