"""Rehearse: the real training program for one rank of a world of any size, on tensors without numbers.

The same `modes` and training step as `train`, in a process group that talks to nobody: every allocation, operation and
collective is counted.

- `world`: the process group; `ledger`: the bytes alive at every moment; `places`: which phase and module it is.
- `shortened`, `whole`: micro-batches that stand for others, and the step that they make.
- `rank`: all of it for one rank; `parts`: what the bytes are; `session`: the ranks of a layout that differ.
- `summed`: an account in numbers; `stacked`: its parts over a step; `exports`: its files.
- `moves`: what FSDP2 offloads and fetches; `hosted`: what is in the host's memory beside the formulas.
- `compare`: the formulas of the same rank beside it; `job`, `own`: what is rehearsed, a job of ours or your own model.
"""
