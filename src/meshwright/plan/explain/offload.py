"""Offload: states in the host's memory."""

from __future__ import annotations

from meshwright.cost.offload import HOST_ADAM_BYTES_PER_S, host_bytes, offload_seconds
from meshwright.cost.shares import RankParameters
from meshwright.plan.explain.common import states_on_rank, zero_layout
from meshwright.plan.explain.inputs import Inputs
from meshwright.plan.explain.page import Page, account, table
from meshwright.spec.units import binary, count, duration, gb_per_s, gib


def page(topic: str, given: Inputs) -> Page:
    """The account of offloading optimizer states, parameters, or both."""
    stage, d, s, cluster = given.zero, given.ranks, given.state_bytes, given.cluster
    held = RankParameters(given.parameters, 0.0)
    kinds: dict[str, tuple[str, ...]] = {"nothing": (), "optimizer": ("optimizer",)}
    if stage == 3:
        kinds["optimizer+parameters"] = ("optimizer", "parameters")
        kinds["optimizer on NVMe"] = ("optimizer", "nvme")
    rows, numbers = [], {}
    for name, what in kinds.items():
        layout = zero_layout(stage, d, offload=what)
        facts = {
            "device_bytes": sum(states_on_rank(given, layout)),
            "host_bytes_per_node": float(host_bytes(held, held, s, layout, cluster)),
            "seconds": float(offload_seconds(held, held, s, layout, cluster, 1)),
        }
        numbers[name] = facts
        rows.append((name, gib(facts["device_bytes"]), gib(facts["host_bytes_per_node"]), duration(facts["seconds"])))
    share = given.parameters / (d if stage else 1)
    return account(
        topic,
        "Offload: optimizer states on the host",
        what="Master weights and moments live in host memory, where the CPU updates them. Each step gradients go "
        "down and new parameters come up. NVMe holds what host memory cannot.",
        formula=(
            "moved over the host link a step: parameters of the rank x (gradient bytes + parameter bytes)",
            "update: reads and writes master, moments and parameters at the speed of host memory, shared by the node",
        ),
        steps=(
            f"N = {count(given.parameters)}, ZeRO stage {stage} on {d} ranks: {count(share)} updated for each rank",
            f"over the host link: {binary(share * (s.reduce + s.compute))} a step at "
            f"{gb_per_s(cluster.host_link.bytes_per_s)}",
            f"the CPU's Adam is taken as {gb_per_s(HOST_ADAM_BYTES_PER_S)} a node, for {cluster.devices_per_node} "
            "devices",
            f"a node's host memory: {gib(cluster.host_memory_bytes)}",
        ),
        shown=table(("offloaded", ">states on the device", ">host memory a node", ">time a step"), rows),
        sent="Gradients down, parameters up, once a step; parameters also for every forward and backward when they are "
        "offloaded.",
        saved=f"{s.main_gradient + s.master + s.moments:g} bytes a parameter of the device, shared as in ZeRO, "
        f"and with stage 2 or 3 its gradient's {s.gradient:g}: they go to the host as they arise.",
        use="Few devices and a model that does not fit otherwise, with a large batch: the cost is once a step.",
        avoid="Enough devices for ZeRO-3. Small batches. Hosts with few cores or one socket.",
        sources=("Ren et al. 2021, arXiv:2101.06840", "Rajbhandari et al. 2021, arXiv:2104.07857"),
        numbers={"parameters": given.parameters, "ranks": d, "zero": stage, "offloaded": numbers},
    )
