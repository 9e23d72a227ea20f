"""Ranks: who they are, how they start, stop and fail.

- `environment`: `read_place()` finds rank, world and address under torchrun, Slurm, `launch_local` or alone;
  `check_world(place, layout)`.
- `process_group`: `initialize(place, …)` joins the ranks and returns the device; `finalize()`.
- `local`: `launch_local(command, ranks, folder)` starts all ranks on this machine.
- `error_files`: `record_errors(rank, folder)` around all that a rank does; `failures` finds the one that came first.
- `signals`: `StopFlag`, with which all ranks stop after the same step.
- `pool`: `RankPool` runs many small distributed programs on ranks that start once, for tests and `check`.

Only `process_group`, `signals` and the pool's ranks import torch.
"""
