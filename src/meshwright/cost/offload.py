"""Offload: seconds to move states between device, host and NVMe, and the host memory that they need.

ZeRO-Offload (arXiv:2101.06840) keeps optimizer states on the host and updates there: gradients go down and
parameters up. ZeRO-Infinity (arXiv:2104.07857) keeps parameters there as well, or everything on NVMe.
"""

from __future__ import annotations

import numpy as np

from meshwright.spec.cluster import Cluster
from meshwright.spec.columns import LayoutColumns, Number
from meshwright.spec.workload import StateBytes

HOST_ADAM_BYTES_PER_S = 40e9
"""Bytes/s of optimizer states that the CPU Adam of one host reads and writes.

DeepSpeed pull request 735: 11.6e9 parameters updated in 8.2 s, 28 bytes moved a parameter: 39.6 GB/s. DeepSpeed issue
6834 (Qwen-72B on four nodes) comes to about 51 GB/s a node.
"""


def _sharded(parameters: Number, layout: LayoutColumns, from_stage: int) -> Number:
    return parameters / np.where(np.asarray(layout.zero_stage) >= from_stage, layout.shard * layout.context, 1)


def offload_seconds(
    learned: Number, held: Number, states: StateBytes, layout: LayoutColumns, cluster: Cluster
) -> Number:
    """Seconds a step for offloaded states: transfers over the host link, CPU update, NVMe reads and writes.

    `learned` and `held` count the parameters on one device that are trained, and all of them, before sharding.
    """
    mine = _sharded(learned, layout, 1)
    link = cluster.host_link.bytes_per_s
    sharers = cluster.devices_per_node
    optimizer = np.asarray(layout.offload_optimizer)
    transfer = mine * (states.reduce + states.compute) / link
    moved = mine * 2 * (states.master + states.moments + states.parameter)
    update = moved * sharers / HOST_ADAM_BYTES_PER_S
    weights = np.asarray(layout.offload_parameters) * 3 * _sharded(held, layout, 3) * states.compute / link
    on_disk = mine * (states.master + states.moments + states.main_gradient) * sharers
    disk = np.asarray(layout.offload_nvme) * optimizer * 2 * on_disk / cluster.nvme_bytes_per_s
    return optimizer * (transfer + update) + weights + disk


def host_bytes(learned: Number, held: Number, states: StateBytes, layout: LayoutColumns, cluster: Cluster) -> Number:
    """Host memory a node needs: the offloaded states of its devices, and pinned gradient buffers."""
    mine = _sharded(learned, layout, 1)
    optimizer = np.asarray(layout.offload_optimizer) * (1 - np.asarray(layout.offload_nvme))
    per_device = optimizer * mine * (states.main_gradient + states.master + states.moments)
    per_device = per_device + np.asarray(layout.offload_optimizer) * mine * states.reduce
    per_device = per_device + np.asarray(layout.offload_parameters) * _sharded(held, layout, 3) * states.parameter
    return per_device * cluster.devices_per_node
