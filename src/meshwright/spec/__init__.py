"""The nouns: Model, Cluster, Workload, Layout; reading, validation, units. Data only."""
