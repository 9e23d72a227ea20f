"""Meshwright: plan, rehearse, run and diagnose parallel training of neural networks."""

__version__ = "0.1.0"
