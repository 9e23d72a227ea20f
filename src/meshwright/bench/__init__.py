"""Bench: layouts side by side on the same model, data, precision and global batch; `comms`: what the network can do.

`result` is a Measurement, the Estimate's twin; `documents` reads and writes it.
"""
