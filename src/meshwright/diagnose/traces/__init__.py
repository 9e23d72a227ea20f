"""Kineto traces (Chrome's trace format) of one rank: `events` reads them, `activity` adds up where the time goes.

`intervals` is the algebra of sets of time spans that both use.
"""
