"""Program: the bytes that our own runtime (`train`, `modes`) needs on one rank, counted as its code allocates them.

The rest of `cost` prices other people's software with fitted constants. Here nothing is fitted: each line is a tensor
that a module of `train/models` keeps, and `rehearse` holds it against the program itself.
"""
