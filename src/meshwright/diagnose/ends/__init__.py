"""How processes ended: Python's uncaught exceptions, torchrun's report of a failure, a scheduler's limits.

What no other topic knows the reason of is told here as it is, so that nobody else is blamed for it.
"""
