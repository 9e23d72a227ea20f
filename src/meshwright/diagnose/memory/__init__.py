"""Memory: why an allocation failed, on a device or on the host.

`oom` reads the texts of an out-of-memory error into numbers, `place` says what the program did then, `collect` gathers
both from logs; `verdict`, `capacity`, `logits`, `host_memory` and `retries` are the rules. `snapshot` reads PyTorch's
memory snapshots.
"""
