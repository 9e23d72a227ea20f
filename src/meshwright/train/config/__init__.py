"""The configuration of a training run: one tree of frozen dataclasses, read from defaults, a TOML file and flags.

`tree` is the tree, `keys` its keys with types, defaults and docs, `read` puts the sources together, `toml_file` reads
with line numbers and writes, `resolve` fills in what is left open and refuses what no run could be. Nothing here
imports torch: a wrong request is refused before any process starts.
"""
