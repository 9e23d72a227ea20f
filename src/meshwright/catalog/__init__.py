"""The catalogue: what is known before anything is computed. Data files, each figure with its source, and their loaders.

`model_files` reads the preset models, `cluster_files` devices, links and fitted efficiencies, `run_files` the published
runs. A loader hands out plain text, tables and rows; checking them is the business of `spec` and `plan`.
"""
