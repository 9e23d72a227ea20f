"""Metrics: what training programs print of every step, read into series, and what series and two runs tell.

`numbers` finds named numbers in a line, `series` keeps them by run, `read` and `document` are the readers; the other
files are rules: `overflow` (fp16, NaN), `compare` (two runs), `schedule`, `sharding`, `pace` (step times), `work`
(MFU).
"""
