"""Offload: seconds to move states between device, host and NVMe, and the host memory that they need.

ZeRO-Offload (arXiv:2101.06840) keeps optimizer states on the host and updates there: gradients go down and
parameters up. ZeRO-Infinity (arXiv:2104.07857) keeps parameters there as well, or everything on NVMe.
"""

from __future__ import annotations

import numpy as np

from meshwright.cost.shares import RankParameters, sharded
from meshwright.spec.cluster import Cluster
from meshwright.spec.columns import LayoutColumns, Number
from meshwright.spec.workload import StateBytes

HOST_ADAM_BYTES_PER_S = 40e9
"""Bytes/s of optimizer states that the CPU Adam of one host reads and writes.

DeepSpeed pull request 735: 11.6e9 parameters updated in 8.2 s, 28 bytes moved a parameter: 39.6 GB/s. DeepSpeed issue
6834 (Qwen-72B on four nodes) comes to about 51 GB/s a node.
"""


def offload_seconds(
    learned: RankParameters,
    held: RankParameters,
    states: StateBytes,
    layout: LayoutColumns,
    cluster: Cluster,
    micro_batches: Number,
) -> Number:
    """Seconds a step for offloaded states: transfers over the host link, CPU update, NVMe reads and writes.

    `learned` and `held` are the parameters of one rank that are trained, and all of them, before sharding. Offloaded
    parameters come up for every forward and backward, and their gradients go down once.
    """
    mine, kept = sharded(learned, layout, 1), sharded(held, layout, 3) * states.compute
    link, sharers = cluster.host_link.bytes_per_s, _sharers(layout, cluster)
    optimizer, parameters = np.asarray(layout.offload_optimizer), np.asarray(layout.offload_parameters)
    down = np.maximum(optimizer, parameters) * mine * states.reduce
    up = optimizer * (1 - parameters) * mine * states.compute
    moved = mine * 2 * (states.master + states.moments + states.parameter)
    update = moved * sharers / HOST_ADAM_BYTES_PER_S
    loaded = parameters * 2 * micro_batches * kept
    written = parameters * mine * states.compute
    on_disk = optimizer * 2 * mine * (states.master + states.moments + states.main_gradient) + loaded + written
    disk = np.asarray(layout.offload_nvme) * on_disk * sharers / cluster.nvme_bytes_per_s
    return optimizer * update + (down + up + loaded) / link + disk


def host_bytes(
    learned: RankParameters, held: RankParameters, states: StateBytes, layout: LayoutColumns, cluster: Cluster
) -> Number:
    """Host memory a node needs: the offloaded states of its devices, and pinned gradient buffers.

    On NVMe the states leave the host; the buffers through which they pass are not counted.
    """
    mine, in_memory = sharded(learned, layout, 1), 1 - np.asarray(layout.offload_nvme)
    optimizer, parameters = np.asarray(layout.offload_optimizer), np.asarray(layout.offload_parameters)
    per_device = optimizer * in_memory * mine * (states.main_gradient + states.master + states.moments)
    per_device = per_device + optimizer * mine * states.reduce
    per_device = per_device + parameters * in_memory * sharded(held, layout, 3) * states.parameter
    return per_device * _sharers(layout, cluster)


def _sharers(layout: LayoutColumns, cluster: Cluster) -> Number:
    """Devices of a node that the job uses: they share its host."""
    return np.minimum(layout.devices, cluster.devices_per_node)
