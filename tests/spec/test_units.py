"""Quantities as people write them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.spec import units
from meshwright.spec.units import UnitError, parse_bandwidth, parse_bytes, parse_count, parse_seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("80GB", 80e9),
        ("80 GiB", 85899345920),
        ("1 TiB", 1099511627776),
        ("512 MiB", 536870912),
        ("0 B", 0),
        ("1.5kB", 1500),
    ],
)
def test_gb_is_decimal_and_gib_is_binary(text: str, size: float) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "bytes_per_s"),
    [
        ("100Gbps", 12.5e9),
        ("100 Gb/s", 12.5e9),
        ("100 Gbit/s", 12.5e9),
        ("100gbps", 12.5e9),
        ("25GB/s", 25e9),
        ("25 GBps", 25e9),
        ("1 GiB/s", 1073741824),
        ("1.6 Tbps", 200e9),
    ],
)
def test_bits_are_an_eighth_of_bytes(text: str, bytes_per_s: float) -> None:
    assert parse_bandwidth(text) == pytest.approx(bytes_per_s, rel=1e-12)


@pytest.mark.parametrize(
    "text", ["25gb/s", "25G", "25 Gb", "25", "25 GB", "GB/s", "", "1e400 GB/s", "-1 Gbps", "nan Gbps"]
)
def test_an_ambiguous_bandwidth_is_refused(text: str) -> None:
    with pytest.raises(UnitError) as error:
        parse_bandwidth(text)
    assert any("Gbps" in legal for legal in error.value.legal)
    assert any("GB/s" in legal for legal in error.value.legal)


@pytest.mark.parametrize("text", ["80G", "80gb", "80Gb", "80", "80 GB/s", "-1 GB", "inf GB"])
def test_an_ambiguous_size_is_refused(text: str) -> None:
    with pytest.raises(UnitError) as error:
        parse_bytes(text)
    assert [legal.split()[-1] for legal in error.value.legal] in (["GB", "GiB"], ["GiB", "GB"])


def test_a_refusal_offers_the_same_number_with_both_units() -> None:
    with pytest.raises(UnitError, match="40 GB, 40 GiB"):
        parse_bytes("40Gb")


def test_times_from_nanoseconds_to_days() -> None:
    texts = ["3 ns", "5us", "5 µs", "1.2ms", "3s", "2 min", "1h", "4 d"]
    assert [parse_seconds(text) for text in texts] == pytest.approx([3e-9, 5e-6, 5e-6, 1.2e-3, 3, 120, 3600, 345600])
    with pytest.raises(UnitError):
        parse_seconds("5 sec")


def test_counts_of_parameters() -> None:
    assert [parse_count(text) for text in ("7.1B", "350M", "1.5K", "1T", "4096", "1e9")] == [
        7.1e9,
        350e6,
        1500,
        1e12,
        4096,
        1e9,
    ]
    with pytest.raises(UnitError):
        parse_count("7.1 billion")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (units.gib(12.3 * 2**30), "12.3 GiB"),
        (units.binary(4 * 4096 * 3584 * 2), "112 MiB"),
        (units.binary(1.6e12), "1.46 TiB"),
        (units.binary(0), "0 B"),
        (units.duration(0.532), "532 ms"),
        (units.duration(0.9996), "1 s"),
        (units.duration(2.63), "2.63 s"),
        (units.duration(45e-6), "45 µs"),
        (units.duration(600), "10.0 min"),
        (units.duration(86400), "24.0 h"),
        (units.duration(0), "0 s"),
        (units.count(6738415616), "6.74 B"),
        (units.count(124439808), "124 M"),
        (units.count(512), "512"),
        (units.count(999999), "1 M"),
        (units.gbps(25e9), "200 Gbps"),
        (units.gb_per_s(25e9), "25 GB/s"),
        (units.flops(2.25e15), "2.25 PFLOP/s"),
        (units.percent(7 / 15), "46.7 %"),
    ],
)
def test_what_people_see(text: str, expected: str) -> None:
    assert text == expected


SIZES = st.floats(min_value=1, max_value=1e16)


@given(SIZES)
def test_printed_sizes_read_back_within_three_digits(size: float) -> None:
    assert parse_bytes(units.binary(size).replace(",", "")) == pytest.approx(size, rel=5.1e-3)


@given(SIZES)
def test_printed_bandwidths_read_back_alike_in_bits_and_bytes(size: float) -> None:
    bytes_per_s = size + 1e6
    bits = parse_bandwidth(units.gbps(bytes_per_s).replace(",", ""))
    octets = parse_bandwidth(units.gb_per_s(bytes_per_s).replace(",", ""))
    assert bits == pytest.approx(bytes_per_s, rel=5.1e-3)
    assert octets == pytest.approx(bytes_per_s, rel=5.1e-3)


@given(st.floats(min_value=1e-8, max_value=1e7))
def test_printed_times_read_back(seconds: float) -> None:
    assert parse_seconds(units.duration(seconds).replace(",", "")) == pytest.approx(seconds, rel=3e-2)


@given(st.floats(min_value=1, max_value=1e14))
def test_printed_counts_read_back(number: float) -> None:
    assert parse_count(units.count(number).replace(",", "")) == pytest.approx(number, rel=5.1e-3)


@given(st.text(max_size=30))
def test_any_text_is_a_finite_quantity_or_a_unit_error(text: str) -> None:
    for parse in (parse_bytes, parse_bandwidth, parse_seconds, parse_count):
        try:
            value: float = parse(text)
        except UnitError as error:
            value = len(error.legal) or math.nan  # a refusal without legal values is as wrong as NaN
        assert 0 <= value < math.inf


def test_a_rounding_error_below_zero_is_no_minus() -> None:
    assert units.percent(-1e-9) == "0.0 %"
    assert units.percent(-0.001) == "-0.1 %"
