"""The device measured by shape, and the constants of `spec.cluster.Efficiency` fitted to it.

- `shapes`: what is measured, each with the operations of the cost model that stand for it.
- `work`: the same in PyTorch; `clock`: how long it takes while all ranks do it.
- `fit`: constants with which the cost model tells the measured times.
- `session`: all of it on one rank of several.

Only `work`, `clock` and `session` import torch.
"""
