"""The JSON documents' parts. Other tools read the keys: they are added to, never renamed."""

from __future__ import annotations

from typing import Any

from meshwright.cost.parameters import parameters
from meshwright.cost.result import Estimate, Traffic
from meshwright.plan.evidence import NearRun
from meshwright.plan.published import PublishedRun
from meshwright.spec.cluster import Cluster, Link
from meshwright.spec.layout import Layout
from meshwright.spec.model import Model
from meshwright.spec.notation import format_layout
from meshwright.spec.units import GIB
from meshwright.spec.workload import Workload

DEGREES = ("replicate", "shard", "context", "tensor", "expert", "pipeline")


def model_document(model: Model) -> dict[str, Any]:
    """The model's name and size."""
    counts = parameters(model)
    return {"name": model.name, "parameters": counts.total, "active_parameters": counts.active}


def cluster_document(cluster: Cluster) -> dict[str, Any]:
    """The cluster's shape and links; bytes and bytes/s."""
    return {
        "name": cluster.name,
        "device": cluster.device.name,
        "devices": cluster.devices,
        "nodes": cluster.nodes,
        "devices_per_node": cluster.devices_per_node,
        "memory_gib": cluster.device.memory_bytes / GIB,
        "intra_node": _link(cluster.intra),
        "inter_node": _link(cluster.inter) | {"nics_per_node": cluster.nics_per_node},
    }


def _link(link: Link) -> dict[str, Any]:
    return {"name": link.name, "bytes_per_second": link.bytes_per_s, "latency_seconds": link.latency_s}


def workload_document(workload: Workload) -> dict[str, Any]:
    """The work of one step."""
    return {
        "seq_len": workload.seq_len,
        "global_batch": workload.global_batch,
        "precision": workload.precision,
        "optimizer": workload.optimizer,
        "states": workload.states,
        "implementation": workload.implementation,
        "causal": workload.causal,
        "fused_attention": workload.fused_attention,
        "tuning": workload.tuning.kind,
    }


def plan_document(estimate: Estimate, rank: int = 1) -> dict[str, Any]:
    """One layout with its price: sizes in GiB, times in seconds, shares of 1."""
    memory = estimate.memory
    return {
        "rank": rank,
        "layout": format_layout(estimate.layout),
        "degrees": degrees(estimate.layout),
        "step_seconds": estimate.step_seconds,
        "tokens_per_second_per_device": estimate.tokens_per_second_per_device,
        "mfu": estimate.mfu,
        "hfu": estimate.hfu,
        "bubble": estimate.bubble,
        "memory": {
            "total_gib": memory.reserved_bytes / GIB,
            "parts": {name: size / GIB for name, size in memory_parts(estimate).items()},
            "peak_instant": memory.peak_instant,
            "instants": {name: size / GIB for name, size in memory.instants.items()},
            "stage": memory.stage,
            "allocated_gib": memory.peak_bytes / GIB,
            "capacity_gib": memory.capacity_bytes / GIB,
            "host_gib": memory.host_bytes / GIB,
        },
        "time": {"parts": dict(estimate.time)},
        "verdict": memory.verdict,
        "assumptions": list(estimate.assumptions),
        "warnings": list(estimate.warnings),
    }


def memory_parts(estimate: Estimate) -> dict[str, float]:
    """Bytes at the peak instant that add up to what the device must have; `reserve` is what no tensor holds."""
    memory = estimate.memory
    return dict(memory.parts) | {"reserve": memory.reserved_bytes - memory.peak_bytes}


def degrees(layout: Layout) -> dict[str, int]:
    """The degree of every axis."""
    return {axis: getattr(layout, axis) for axis in DEGREES}


def traffic_document(traffic: Traffic) -> dict[str, Any]:
    """One kind of collective on one axis: what one device sends in a step."""
    return {
        "axis": traffic.axis,
        "collective": traffic.collective,
        "count": traffic.count,
        "bytes": traffic.bytes,
        "seconds": traffic.seconds,
        "exposed_seconds": traffic.exposed_seconds,
        "bandwidth_to_hide": traffic.bandwidth_to_hide,
    }


def near_document(near: NearRun) -> dict[str, Any]:
    """A published run beside what is predicted of it."""
    return run_document(near.run) | {"predicted_step_seconds": near.predicted_seconds, "error": near.error}


def run_document(run: PublishedRun) -> dict[str, Any]:
    """A published run with its source."""
    return {
        "id": run.id,
        "source": run.source,
        "source_locator": run.source_locator,
        "model": run.model_name,
        "parameters": run.parameters,
        "device": run.device,
        "devices": run.devices,
        "layout": run.layout,
        "seq_len": run.count("seq_len"),
        "global_batch": run.count("global_batch"),
        "precision": run.text("precision"),
        "framework": run.text("framework"),
        "step_seconds": run.step_seconds,
        "tokens_per_second_per_device": run.tokens_per_second_per_device,
        "peak_memory_gib": run.measure("peak_mem_gib"),
        "out_of_memory": run.out_of_memory,
        "time_ok": run.time_ok,
        "role": run.text("role"),
        "notes": run.text("notes"),
    }
