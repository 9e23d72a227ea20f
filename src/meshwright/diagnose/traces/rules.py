"""All rules about traces: pure functions from `Traces` to Findings."""

from __future__ import annotations

from meshwright.diagnose.traces.balance import moe_imbalance, pipeline_imbalance
from meshwright.diagnose.traces.host import alloc_retries, dataloader_bound, launch_bound
from meshwright.diagnose.traces.measured import below_measured
from meshwright.diagnose.traces.network import exposed, small_messages
from meshwright.diagnose.traces.stragglers import stragglers

RULES = (
    stragglers, launch_bound, dataloader_bound, alloc_retries, small_messages, exposed, below_measured,
    pipeline_imbalance, moe_imbalance,
)  # fmt: skip
