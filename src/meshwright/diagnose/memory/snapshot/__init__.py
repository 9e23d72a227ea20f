"""PyTorch's memory snapshots: `read` the pickle of any protocol, `blocks` what was alive, `curve` what happened before,
`rule` what it says."""
