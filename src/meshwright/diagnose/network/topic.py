"""Communication as a topic of a diagnosis: one for each kind of lines, so that each has its own trigger."""

from __future__ import annotations

from collections.abc import Iterator

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.network import comms_table, measured, nccl_lines, perftest, timers
from meshwright.diagnose.network.comms_table import find_late_ranks, find_small_messages, find_wrong_bandwidths
from meshwright.diagnose.network.errors import find_errors
from meshwright.diagnose.network.measured import Measured, find_slow_tests, looks_like_json, read_json_file
from meshwright.diagnose.network.nccl_facts import Nccl
from meshwright.diagnose.network.perftest import find_fabric
from meshwright.diagnose.network.rdma import find_bypass
from meshwright.diagnose.network.timer_rules import find_times
from meshwright.diagnose.network.timers import Times
from meshwright.diagnose.network.transport import find_transport
from meshwright.diagnose.topic import Document, Topic


def _nccl_checked(facts: Facts) -> Iterator[str]:
    known = facts.of(Nccl)
    if known.lines:
        yield (
            f"NCCL {known.version} on {known.nodes} hosts, {known.channels.total():,} channels: network, "
            "interfaces, GPUDirect RDMA, peer-to-peer, failed transfers"
        )


def _tests_checked(facts: Facts) -> Iterator[str]:
    if rows := measured.rows_of(facts) if facts.of(Measured).texts or facts.of(Measured).reports else ():
        yield f"{len(rows)} sizes of nccl-tests against the links of the catalogue"


def _tests_missing(facts: Facts) -> Iterator[str]:
    known = facts.of(Measured)
    for path, line in known.failures.items():
        yield f"a measured bandwidth: nccl-tests did not run ({line.text.strip()[:160]}; {path})"
    for path, problem in known.broken.items():
        yield f"a measured bandwidth from {path}: {problem}"


def _times_checked(facts: Facts) -> Iterator[str]:
    known = facts.of(Times)
    if known.timers or known.extremes:
        yield f"{len(known.timers) + len(known.extremes)} timers: communication's share, ranks apart, data"


NETWORK = (
    Topic(
        "network", rules=(find_errors, find_transport, find_bypass), checked=_nccl_checked,
        collect=nccl_lines.collect,
    ),
    Topic(
        "measured bandwidth", rules=(find_slow_tests,), checked=_tests_checked, missing=_tests_missing,
        documents=(Document(measured.KIND, looks_like_json, read_json_file),),
        collect=measured.collect,
    ),
    Topic(
        "communication summaries", rules=(find_small_messages, find_late_ranks, find_wrong_bandwidths),
        collect=comms_table.collect,
    ),
    Topic("fabric", rules=(find_fabric,), collect=perftest.collect),
    Topic("step times", rules=(find_times,), checked=_times_checked, collect=timers.collect),
)  # fmt: skip
