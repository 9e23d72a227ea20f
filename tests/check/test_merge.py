"""The ranks' reports joined, on reports made by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from meshwright.check.merge import compare, reference_scales
from meshwright.check.program import AXES, BoxReport, Difference, RankReport

KNOWN = {"loss": [2.0], "grad_norm": [5.0], "shapes": {"w": (4,), "v": (2,)}, "sums": [], "counts": []}
SCALES = {f"{kind}/{name}": [10.0] for kind in ("gradient", "update") for name in ("w", "v")}
SAME = Difference(0.0, 25.0, 25.0, 25.0)


def box(
    name: str, offset: int, size: int, gradient: Difference = SAME, *, copies: int = 1, digest: str = ""
) -> BoxReport:
    shape = KNOWN["shapes"][name]  # type: ignore[index]
    return BoxReport(name, shape, (offset,), (size,), copies, False, 0.0, [gradient], [SAME], digest)


def rank(*boxes: BoxReport, norm: float = 5.0, **place: int) -> RankReport:
    return RankReport(dict.fromkeys(AXES, 0) | place, [2.0], [norm], list(boxes), [], 1.0)


def test_boxes_of_all_ranks_make_the_whole_and_copies_count_once() -> None:
    halves = [rank(box("w", 0, 2, copies=2), shard=0), rank(box("w", 2, 2, copies=2), shard=1)]
    again = [rank(box("w", 0, 2, copies=2), replicate=1), rank(box("w", 2, 2, copies=2), replicate=1, shard=1)]
    assert compare([*halves, *again], KNOWN, SCALES).covered == {"w": 4}
    assert compare(halves[:1], KNOWN, SCALES).covered == {"w": 2}


def test_the_worst_box_is_the_error_relative_to_its_scale() -> None:
    wrong = Difference(0.5, 25.0, 25.0, 25.0)
    found = compare([rank(box("w", 0, 2)), rank(box("w", 2, 2, wrong), shard=1)], KNOWN, SCALES)
    assert found.gradient_errors["w"] == (0.05,)
    assert found.first_wrong(0.04) == 0
    assert found.first_wrong(0.06) is None


def test_a_gradient_that_is_not_there_is_infinitely_wrong() -> None:
    nothing = Difference(math.nan, math.nan, math.nan, 25.0)
    found = compare([rank(box("w", 0, 4, nothing))], KNOWN, SCALES)
    assert found.gradient_errors["w"] == (math.inf,)
    assert math.isnan(found.gradient_ratios["w"][0] or 0.0)


@pytest.mark.parametrize(
    ("boxes", "ratio"),
    [
        ([Difference(1.0, 50.0, 100.0, 25.0)], 2.0),
        ([Difference(1.0, 12.5, 6.25, 25.0)], 0.5),
        ([Difference(1.0, 0.0, 0.0, 25.0)], 0.0),
        # As long as the reference and at an angle to it: no ratio.
        ([Difference(1.0, 20.0, 25.0, 25.0)], None),
        # Half of the gradient on each of two ranks (3, 4) = (3, 0) + (0, 4): their mean is, but they are no multiple.
        ([Difference(4.0, 9.0, 9.0, 25.0), Difference(3.0, 16.0, 16.0, 25.0)], None),
    ],
)
def test_only_a_multiple_of_the_reference_has_a_ratio(boxes: list[Difference], ratio: float | None) -> None:
    reports = [rank(box("w", 0, 4, one, copies=len(boxes)), context=i) for i, one in enumerate(boxes)]
    found = compare(reports, KNOWN, SCALES).gradient_ratios["w"][0]
    assert found == (None if ratio is None else pytest.approx(ratio))


@pytest.mark.parametrize("axis", AXES)
def test_copies_that_differ_are_told_by_the_axis_between_them(axis: str) -> None:
    same = [rank(box("w", 0, 4, digest="a")), rank(box("w", 0, 4, digest="a"), **{axis: 1})]
    assert compare(same, KNOWN, SCALES).differing_axes == ()
    apart = [rank(box("w", 0, 4, digest="a")), rank(box("w", 0, 4, digest="b"), **{axis: 1})]
    assert compare(apart, KNOWN, SCALES).differing_axes == (axis,)


def test_other_boxes_of_one_parameter_may_differ() -> None:
    found = compare([rank(box("w", 0, 2, digest="a")), rank(box("w", 2, 2, digest="b"), shard=1)], KNOWN, SCALES)
    assert found.differing_axes == ()


def test_ranks_that_disagree_on_the_norm_are_told_by_their_axis() -> None:
    found = compare([rank(box("w", 0, 4)), rank(box("v", 0, 2), norm=4.0, pipeline=1)], KNOWN, SCALES)
    assert found.norms_differ == ("pipeline",)
    assert found.grad_norm_error == pytest.approx(0.2)


def test_scales_are_the_parameter_s_own_but_no_less_than_a_thousandth_and_two_bits(tmp_path: Path) -> None:
    path = str(tmp_path / "reference.pt")
    shapes = {"w": (2,), "v": (2,), "u": (1,)}
    old = torch.tensor([1.0, 2.0, 0.5, 0.5, 1024.0])
    new = torch.tensor([1.0, 6.0, 0.5, 1.0, 1024.0])
    gradients = torch.tensor([0.0, -8.0, 1e-6, 0.0, 1.0])
    torch.save({"shapes": shapes, "gradients": [gradients], "parameters": [old, new]}, path)
    scales = reference_scales(path, 1e-5)
    assert scales["gradient/w"] == [8.0]
    assert scales["gradient/v"] == [pytest.approx(8e-3)]
    assert scales["update/w"] == [4.0]
    assert scales["update/v"] == [0.5]
    # 1024 is known to 2⁻²³ · 1024: an update of two such bits is within the tolerance.
    assert scales["update/u"] == [pytest.approx(2**-12 / 1e-5)]
