"""What a job left behind, read: nothing here imports torch.

`traces` reads Kineto's traces: what a rank computed, what it sent, and what of that was hidden.
"""
