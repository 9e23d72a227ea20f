"""PyTorch's Flight Recorder: what each rank was doing in its process groups when the job hung.

`read` reads a dump, `waits` finds who waits for whom, `mismatch` collectives in which ranks do not do the same, `rule`
turns both into Findings.
"""
