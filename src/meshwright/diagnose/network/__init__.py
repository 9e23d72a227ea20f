"""What logs tell of the network: which transport NCCL chose, what nccl-tests reached, and what communication cost.

`nccl_lines` reads NCCL_DEBUG, `transport`, `rdma` and `errors` judge it; `measured` holds nccl-tests' output against
the catalogue's links; `comms_table` and `timers` read DeepSpeed's and Megatron's own times.
"""
