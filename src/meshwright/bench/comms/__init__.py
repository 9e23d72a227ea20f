"""Collectives measured as nccl-tests does, and the alpha and beta of `cost.collectives` fitted to them.

- `operations`, `result`: sizes, bandwidths, rows and fits. `lines`: which ranks, with which others at once.
- `messages`: tensors, calls, and whether the right data arrived; `clock`: how long it took; `measure`: all of it.
- `fit`: the numbers of each tier. `cluster_file`: them as a Cluster and as TOML. `reading`: rows of nccl-tests instead.
- `session`: one rank's part, from joining the others to leaving them.

`operations`, `result`, `fit`, `cluster_file`, `reading` and `document` do without torch.
"""
