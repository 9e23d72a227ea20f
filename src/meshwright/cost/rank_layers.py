"""Rank layers: how many layers each pipeline rank has, and how many of them learn."""

from __future__ import annotations

from dataclasses import astuple, dataclass

import numpy as np

from meshwright.cost import parameters as count
from meshwright.spec.columns import LayoutColumns, Number
from meshwright.spec.layout import SCHEDULES, V_SCHEDULES
from meshwright.spec.model import Model
from meshwright.spec.workload import Tuning

V_CODES = tuple(SCHEDULES.index(name) for name in V_SCHEDULES)


@dataclass(frozen=True, slots=True)
class RankLayers:
    """Layers on a first, an ordinary and a last pipeline rank."""

    first: Number
    middle: Number
    """The fullest rank that is neither first nor last (with fewer than three ranks: the fuller of the two)."""
    last: Number


def is_v(layout: LayoutColumns) -> Number:
    """Rows whose stages lie in a V: the first rank has the first and the last stage (arXiv:2401.10241)."""
    return np.isin(np.asarray(layout.schedule), V_CODES) & (np.asarray(layout.pipeline) > 1)


def rank_layers(model: Model, layout: LayoutColumns, by_cost: bool) -> RankLayers:
    """Layers a rank: the layout's own where it gives them by hand, else balanced."""
    by_hand = layout.stage_layers
    if isinstance(by_hand, tuple):
        return (
            given_layers(by_hand, int(layout.pipeline), bool(is_v(layout)))
            if by_hand
            else balanced_layers(model, layout, by_cost)
        )
    return _given_rows(by_hand, layout, balanced_layers(model, layout, by_cost))


def _given_rows(by_hand: np.ndarray, layout: LayoutColumns, balanced: RankLayers) -> RankLayers:
    """Columns of layouts, of which some give their layers by hand."""
    rows = [np.array(np.broadcast_to(x, by_hand.shape), dtype=float) for x in astuple(balanced)]
    for index, given in enumerate(by_hand):
        if given:
            one = layout.take(index)
            found = given_layers(given, int(one.pipeline), bool(is_v(one)))
            for column, value in zip(rows, astuple(found), strict=True):
                column[index] = value
    return RankLayers(*rows)


def balanced_layers(model: Model, layout: LayoutColumns, by_cost: bool = False) -> RankLayers:
    """Layers a rank: even, or (`by_cost`) cut so that layers and head weigh the same on every rank.

    Even: stages with one layer more are spread over the ranks, and where layers do not divide, the ranks of the head
    and then of the embedding get one less. By cost: rank k ends at the first layer where k/p of the weight is reached,
    the rule of nanotron's and torchtitan's splitters.
    """
    if by_cost:
        return _by_cost(model, layout)
    full = np.ceil(model.layers / layout.pipeline)
    missing = full * layout.pipeline - model.layers
    several, folded = np.asarray(layout.pipeline) > 1, is_v(layout)
    head = full - np.where((missing > 0) & several, 1, 0)
    other = full - np.where((missing > 1) & several, 1, 0)
    return RankLayers(first=np.where(folded, head, other), middle=full, last=np.where(folded, other, head))


def _by_cost(model: Model, layout: LayoutColumns) -> RankLayers:
    whole = count.parameters(model)
    layer = (whole.active - whole.outside) / model.layers
    target = (model.layers + model.vocab * model.hidden / layer) / layout.pipeline
    most = np.minimum(np.ceil(target - 1e-9), model.layers)
    ahead = np.minimum(np.ceil((layout.pipeline - 1) * target - 1e-9), model.layers)
    rest = model.layers - ahead
    alone, folded = np.asarray(layout.pipeline) == 1, is_v(layout)
    first = np.where(alone, model.layers, np.where(folded, rest, most))
    return RankLayers(first, np.maximum(first, most), np.where(alone, model.layers, np.where(folded, most, rest)))


def given_layers(stage_layers: tuple[int, ...], pipeline: int, v_shaped: bool = False) -> RankLayers:
    """Layers a rank from the stages' layers by hand: stage i on rank i mod p, or, in a V, on i and 2p - 1 - i."""
    if v_shaped:
        ranks = [stage_layers[rank] + stage_layers[2 * pipeline - 1 - rank] for rank in range(pipeline)]
    else:
        ranks = [sum(stage_layers[rank::pipeline]) for rank in range(pipeline)]
    return RankLayers(ranks[0], max(ranks[1:-1] or ranks), ranks[-1])


def learned_layers(model: Model, layout: LayoutColumns, tuning: Tuning, layers: RankLayers) -> RankLayers:
    """Of each rank's layers those with a backward: all, or what lies behind the frozen ones.

    For an ordinary rank it is the last of them that counts: it has the most. In a V half of the first rank's layers
    are the model's last.
    """
    frozen = tuning.frozen_layers if tuning.kind == "frozen" else 0
    most = model.layers - frozen
    ahead = np.where(is_v(layout), layers.first / 2, layers.first)
    first = np.maximum(ahead - frozen, 0) + (layers.first - ahead)
    return RankLayers(np.minimum(first, most), np.minimum(layers.middle, most), np.minimum(layers.last, most))
