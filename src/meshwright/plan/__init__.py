"""Plans: the search over layouts, its defaults and advice, and how the predictions compare with published runs.

`history` reads tables of published runs and finds the ones nearest to a plan.
"""
