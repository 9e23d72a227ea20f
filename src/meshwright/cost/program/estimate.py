"""The Memory of an Estimate, of our own runtime: the fullest rank's peak, counted instead of fitted."""

from __future__ import annotations

from dataclasses import replace

from meshwright.cost.program.memory import rank_peak
from meshwright.cost.result import Estimate
from meshwright.cost.step import micro_batch_count
from meshwright.cost.verdict import verdict, with_reserve
from meshwright.cost.wire.place import stage_ranks
from meshwright.spec.columns import columns_of
from meshwright.spec.layout import Layout

LINE = "memory is counted as this program allocates it (cost/program), and not fitted"


IN_PLACE = ("adamw", "sgd")
"""Optimizers whose step needs no memory beside their states."""


def counts(layout: Layout, optimizer: str) -> bool:
    """Whether the peak is counted; offload, servers and other optimizers are left to the classes of software."""
    return not layout.offload and not layout.servers and optimizer in IN_PLACE


def with_own_memory(priced: Estimate, optimizer: str, *, gpu: bool) -> Estimate:
    """`priced` with the memory of our own program, without torch.compile.

    `optimizer` by its name in the configuration; `gpu`: with the kernels of one. Raises ModelError for a model that the
    Decoder does not compute.
    """
    model, workload, layout, cluster = priced.model, priced.workload, priced.layout, priced.cluster
    if not counts(layout, optimizer):
        return priced
    m = int(micro_batch_count(workload, columns_of(layout)))
    ranks = [i * stage_ranks(layout) for i in range(layout.pipeline)]
    peaks = [rank_peak(model, workload, layout, rank, m, optimizer, gpu=gpu) for rank in ranks]
    stage = max(range(len(peaks)), key=lambda i: peaks[i].bytes)
    peak = peaks[stage]
    reserved = float(with_reserve(peak.bytes, cluster.device))
    memory = replace(
        priced.memory,
        peak_bytes=peak.bytes,
        parts=peak.parts,
        peak_instant=peak.instant,
        instants=peak.instants,
        stage=stage,
        reserved_bytes=reserved,
        verdict=verdict(reserved, cluster.device.memory_bytes, priced.memory.host_bytes, cluster.host_memory_bytes),
    )
    return replace(priced, memory=memory, assumptions=(LINE, *priced.assumptions))
