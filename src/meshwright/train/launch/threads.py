"""How many threads a rank's CPU operations take: set for the user, since the default of every core a rank is slow."""

from __future__ import annotations

from meshwright.spec.cores import cores


def threads_of_a_rank(local_ranks: int, *, gpu: bool, launcher: str = "local", available: int | None = None) -> int:
    """Threads for one of `local_ranks` ranks of a node with `available` cores (None: those of this process).

    One where several ranks compute on the CPU: more of them than cores are usual, and then threads wait for each
    other. With GPUs an equal share of the cores; Slurm binds each rank to its own, so there all that it sees.
    """
    available = cores() if available is None else available
    if launcher == "slurm" and gpu:
        return available
    if local_ranks > 1 and not gpu:
        return 1
    return max(available // local_ranks, 1)
