"""Ranks on two nodes: by torchrun, as a user starts them, or each by itself with torchrun's or Slurm's variables."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence

from tests.nodes.namespaces import Done, Nodes

ONE_THREAD = {"OMP_NUM_THREADS": "1"}
_ports = itertools.count(29_500)


def torchrun(nodes: Nodes, arguments: Sequence[str], *, ranks_per_node: int, timeout: float) -> list[Done]:
    """`torchrun … -m -- meshwright ARGUMENTS` on both nodes, of which the first is the master."""
    port = str(next(_ports))
    commands = []
    for node in range(2):
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", str(node)]
        launcher += [
            "--nproc-per-node",
            str(ranks_per_node),
            "--master-addr",
            nodes.addresses[0],
            "--master-port",
            port,
        ]
        commands.append([*launcher, "-m", "--", "meshwright", *arguments])
    return nodes.run(commands, environments=[ONE_THREAD] * 2, timeout=timeout)


def by_hand(nodes: Nodes, places: Sequence[int], command: Sequence[str], *, timeout: float) -> list[Done]:
    """`command` once a rank, rank r on node `places[r]`, with the variables that torchrun would set."""
    port = str(next(_ports))
    environments = []
    for rank, node in enumerate(places):
        here = [other for other, place in enumerate(places) if place == node]
        environments.append(
            _texts(
                RANK=rank,
                WORLD_SIZE=len(places),
                LOCAL_RANK=here.index(rank),
                LOCAL_WORLD_SIZE=len(here),
                GROUP_RANK=node,
                MASTER_ADDR=nodes.addresses[places[0]],
                MASTER_PORT=port,
            )
        )
    return nodes.run([command] * len(places), places=places, environments=environments, timeout=timeout)


def by_slurm(nodes: Nodes, command: Sequence[str], *, timeout: float) -> list[Done]:
    """`command` once on each node, with the variables that `srun` would set."""
    job = next(_ports)
    environments = [
        _texts(
            SLURM_JOB_ID=job,
            SLURM_STEP_ID=0,
            SLURM_PROCID=node,
            SLURM_NTASKS=2,
            SLURM_STEP_NUM_TASKS=2,
            SLURM_LOCALID=0,
            SLURM_NODEID=node,
            SLURM_STEP_NODELIST=",".join(nodes.addresses),
            SLURM_STEP_TASKS_PER_NODE="1(x2)",
        )
        for node in range(2)
    ]
    return nodes.run([command] * 2, environments=environments, timeout=timeout)


def _texts(**variables: object) -> dict[str, str]:
    return {**ONE_THREAD, **{name: str(value) for name, value in variables.items()}}
