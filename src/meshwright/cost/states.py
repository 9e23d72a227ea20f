"""States: bytes of parameters, gradients and optimizer states on one device, and what ZeRO gathers of them."""

from __future__ import annotations

import numpy as np

from meshwright.cost.shares import RankParameters, RankShare, expert_replicas, gradients_whole, kept_gradients, sharded
from meshwright.spec.columns import LayoutColumns, Number
from meshwright.spec.implementation import Implementation
from meshwright.spec.workload import StateBytes


def state_shares(
    held: RankParameters, learned: RankParameters, states: StateBytes, layout: LayoutColumns
) -> tuple[Number, Number, Number]:
    """Bytes of parameters, gradients and optimizer states on one device (ZeRO, arXiv:1910.02054 figure 1).

    `held` and `learned` are a rank's parameters before sharding; only learned ones have gradients and optimizer
    states. Offloaded states, and those that parameter servers keep, leave the device. With an offloaded optimizer
    ZeRO-2 and 3 send gradients to the host as they arise (ZeRO-Offload, arXiv:2101.06840 section 4.1).
    """
    offloaded = np.asarray(layout.offload_optimizer) > 0
    elsewhere = offloaded | (np.asarray(layout.servers) > 0)
    second = np.asarray(layout.secondary_shard)
    copy = np.where(second > 0, states.compute * held.total / np.maximum(second, 1), 0.0)
    parameters = states.parameter * sharded(held, layout, 3) * (1.0 - np.asarray(layout.offload_parameters)) + copy
    whole = gradients_whole(layout)
    gradients = states.gradient * kept_gradients(learned, layout) * np.where(offloaded & ~whole, 0.0, 1.0)
    kept = states.main_gradient + states.master + states.moments
    optimizer = kept * sharded(learned, layout, 1) * np.where(elsewhere, 0.0, 1.0)
    return parameters, gradients, optimizer


def gathered_bytes(
    share: RankShare, ordinary: RankShare, states: StateBytes, layout: LayoutColumns, implementation: Implementation
) -> Number:
    """What a sharded rank holds whole: ZeRO-3 the parameters at work and their gradient, ZeRO-2 the gradient alone.

    An ordinary rank's average layer counts, or the rank's embedding and head where they are larger: they are gathered
    as one.
    """
    stage, ranks = np.asarray(layout.zero_stage), np.asarray(layout.shard * layout.context)
    layer = _shared(ordinary.held, layout) / np.maximum(ordinary.layers, 1)
    learned = _shared(ordinary.learned, layout) / np.maximum(ordinary.learned_layers, 1)
    parameters = np.maximum(implementation.gathered_layers * layer, share.edges) * states.compute
    gradient = np.maximum(learned, share.learned_edges) * states.reduce
    whole = np.where(stage == 3, parameters, 0.0) + np.where(gradients_whole(layout), 0.0, gradient)
    return np.where(ranks > 1, whole, 0.0)


def _shared(parameters: RankParameters, layout: LayoutColumns) -> Number:
    """Parameters that several ranks share; an expert with one replica in the shard group is whole as it is."""
    return parameters.dense + np.where(expert_replicas(layout) > 1, parameters.expert, 0.0)


def bucket_bytes(learned: RankParameters, layout: LayoutColumns, implementation: Implementation) -> Number:
    """Bytes of the flat gradient copies that reductions work on: elsewhere a layer's is all there is."""
    return np.where(gradients_whole(layout), implementation.reduction_bytes, 0.0) * learned.total
