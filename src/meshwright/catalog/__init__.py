"""Data files and their loaders: models, devices, links, measured efficiencies, published runs."""
