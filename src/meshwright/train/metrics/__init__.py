"""What a run tells of itself: a report a step, the files and services it goes to, the progress line, the prediction.

`step` is the report that the loop fills, `writer` sends it to the sinks (`jsonl`, `curves`, `services`), `progress`
prints the line, `throughput` and `usage` measure, `logs` sets up the log files, `prediction` is the Estimate's word
at the start and beside the measurement at the end. Importing any of them imports no torch.
"""
