"""Rank layers: how many layers each pipeline rank has, and how many of them learn.

Layers are cut into stages: stage i holds those from cut i to cut i + 1. Stage i lies on rank i mod p, or, in a V, on
rank i and, mirrored, 2p - 1 - i.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass

import numpy as np

from meshwright.cost import parameters as count
from meshwright.spec.columns import LayoutColumns, Number
from meshwright.spec.layout import V_CODES
from meshwright.spec.model import Model
from meshwright.spec.workload import Tuning

Cut = Callable[[Number], Number]


@dataclass(frozen=True, slots=True)
class RankLayers:
    """Layers on a first, an ordinary and a last pipeline rank."""

    first: Number
    middle: Number
    """The fullest rank that is neither first nor last (with fewer than three ranks: the fuller of the two)."""
    last: Number


def is_v(layout: LayoutColumns) -> Number:
    """Rows whose stages lie in a V: the first rank has the first and the last stage (arXiv:2401.10241)."""
    return one_of(layout.schedule, V_CODES) & (np.asarray(layout.pipeline) > 1)


def one_of(schedule: Number, codes: tuple[int, ...]) -> Number:
    """Rows whose schedule has one of these codes; `numpy.isin` takes ten times as long for one row."""
    found: Number = False
    for code in codes:
        found = found | (np.asarray(schedule) == code)
    return found


def rank_layers(model: Model, layout: LayoutColumns, by_cost: bool, frozen: int = 0) -> RankLayers:
    """Layers a rank behind the `frozen` ones: the layout's own where it gives them by hand, else balanced."""
    by_hand = layout.stage_layers
    if isinstance(by_hand, tuple):
        return given_layers(by_hand, layout, frozen) if by_hand else balanced_layers(model, layout, by_cost, frozen)
    balanced = balanced_layers(model, layout, by_cost, frozen)
    rows = [np.array(np.broadcast_to(x, by_hand.shape), dtype=float) for x in astuple(balanced)]
    for index, given in enumerate(by_hand):
        if given:
            found = given_layers(given, layout.take(index), frozen)
            for column, value in zip(rows, astuple(found), strict=True):
                column[index] = value
    return RankLayers(*rows)


def learned_layers(model: Model, layout: LayoutColumns, by_cost: bool, tuning: Tuning, whole: RankLayers) -> RankLayers:
    """Of each rank's layers, `whole`, those with a backward: all, or what lies behind the frozen ones.

    With two ranks `middle` is of the one that has more layers, so that it is a rank that exists.
    """
    if not tuning.frozen:
        return whole
    learned = rank_layers(model, layout, by_cost, tuning.frozen)
    both = np.maximum(learned.first, learned.last)
    fuller = np.select([whole.first > whole.last, whole.first < whole.last], [learned.first, learned.last], both)
    return RankLayers(learned.first, np.where(np.asarray(layout.pipeline) == 2, fuller, learned.middle), learned.last)


def balanced_layers(model: Model, layout: LayoutColumns, by_cost: bool = False, frozen: int = 0) -> RankLayers:
    """Layers a rank: even, or (`by_cost`) cut so that layers and head weigh the same on every stage.

    Even: stages with one layer more are spread over the ranks, and where layers do not divide, the ranks of the head
    and then of the embedding get one less. By cost: stage k ends at the first layer where k/S of the weight is
    reached, the rule of nanotron's and torchtitan's splitters.
    """
    if by_cost:
        return _cut_ranks(_cost_cut(model, layout), layout, frozen)
    full = np.ceil(model.layers / layout.pipeline)
    missing = full * layout.pipeline - model.layers
    several, folded = np.asarray(layout.pipeline) > 1, is_v(layout)
    head = full - np.where((missing > 0) & several, 1, 0)
    other = full - np.where((missing > 1) & several, 1, 0)
    whole = RankLayers(first=np.where(folded, head, other), middle=full, last=np.where(folded, other, head))
    return _behind(whole, model, layout, frozen) if frozen else whole


def _behind(whole: RankLayers, model: Model, layout: LayoutColumns, frozen: int) -> RankLayers:
    """Of even layers those behind the frozen ones; of ranks with several stages the share that even cuts leave."""
    shares = _cut_ranks(lambda k: k * model.layers / layout.stages, layout, frozen)
    each = model.layers / layout.pipeline
    most = model.layers - frozen
    straight = np.asarray(layout.stages) == np.asarray(layout.pipeline)
    first = np.where(straight, np.maximum(whole.first - frozen, 0), whole.first * shares.first / each)
    last = np.where(straight, np.minimum(whole.last, most), whole.last * shares.last / each)
    middle = np.where(straight, np.minimum(whole.middle, most), whole.middle * shares.middle / each)
    return RankLayers(first, np.where(np.asarray(layout.pipeline) > 2, middle, np.maximum(first, last)), last)


def _cost_cut(model: Model, layout: LayoutColumns) -> Cut:
    whole = count.parameters(model)
    layer = (whole.active - whole.outside) / model.layers
    target = (model.layers + model.vocab * model.hidden / layer) / layout.stages

    def cut(k: Number) -> Number:
        return np.where(k >= layout.stages, model.layers, np.minimum(np.ceil(k * target - 1e-9), model.layers))

    return cut


def _cut_ranks(cut: Cut, layout: LayoutColumns, frozen: int) -> RankLayers:
    """First, last and the fullest of three ranks in between."""
    p = np.asarray(layout.pipeline)
    first, last = (_on_rank(cut, layout, rank, frozen) for rank in (0, p - 1))
    inner = [_on_rank(cut, layout, np.clip(rank, 1, p - 1), frozen) for rank in (1, p // 2, p - 2)]
    between = np.maximum(np.maximum(inner[0], inner[1]), inner[2])
    return RankLayers(first, np.where(p > 2, between, np.maximum(first, last)), last)


def _on_rank(cut: Cut, layout: LayoutColumns, rank: Number, frozen: int) -> Number:
    """Layers behind the frozen ones in all stages of a rank."""
    p, v, folded = np.asarray(layout.pipeline), np.asarray(layout.virtual_stages), is_v(layout)
    total: Number = 0.0
    for chunk in range(int(np.max(v, initial=1))):
        stage = np.where(folded & (chunk == 1), 2 * p - 1 - rank, chunk * p + rank)
        here = np.maximum(cut(stage + 1) - np.maximum(cut(stage), frozen), 0)
        total = total + np.where(chunk < v, here, 0.0)
    return total


def given_layers(stage_layers: tuple[int, ...], layout: LayoutColumns, frozen: int = 0) -> RankLayers:
    """Layers a rank from the stages' layers by hand, of one layout."""
    ranks = given_by_rank(stage_layers, layout, frozen)
    return RankLayers(ranks[0], max(ranks[1:-1] or ranks), ranks[-1])


def given_by_rank(stage_layers: tuple[int, ...], layout: LayoutColumns, frozen: int = 0) -> list[int]:
    """Every rank's layers behind the frozen ones, from the stages' layers by hand, of one layout."""
    p, folded = int(layout.pipeline), bool(is_v(layout))
    ranks, start = [0] * p, 0
    for stage, layers in enumerate(stage_layers):
        rank = 2 * p - 1 - stage if folded and stage >= p else stage % p
        ranks[rank] += max(start + layers - max(start, frozen), 0)
        start += layers
    return ranks
