"""The host: what nvidia-smi, the kernel, lspci, df, p2pBandwidthLatencyTest and py-spy say of the machines of a job.

One file for each kind of output, which reads its lines and judges them; `topic` gives each line to all.
"""
