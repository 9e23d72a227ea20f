"""Rehearse: the real training program for one rank of a world of any size, on tensors without numbers.

The same `modes` and training step as `train`, in a process group that talks to nobody: every allocation, operation and
collective is counted.

- `world`: the process group; `ledger`: the bytes alive at every moment; `places`: which phase and module it is.
- `rank`: all of it for one rank; `parts`: what the bytes are; `session`: the ranks of a layout that differ.
- `account`: what the formulas say of the same rank; `compare`: both side by side.
"""
