"""Logs of any number of ranks: `line` undresses a line, `read` walks through a file and asks every topic."""
