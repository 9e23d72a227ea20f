"""Texts that name a fault, as a topic of a diagnosis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import Finding
from meshwright.diagnose.logs.line import Line
from meshwright.diagnose.signatures.configuration import CONFIGURATION
from meshwright.diagnose.signatures.launch import LAUNCH
from meshwright.diagnose.signatures.network import NETWORK
from meshwright.diagnose.signatures.running import RUNNING
from meshwright.diagnose.signatures.signature import Matches, Table, findings
from meshwright.diagnose.signatures.wrappers import WRAPPERS
from meshwright.diagnose.topic import Topic

ALL = (*LAUNCH, *CONFIGURATION, *WRAPPERS, *NETWORK, *RUNNING)
_TABLE = Table(ALL)


def _collect(line: Line, facts: Facts) -> str:
    _TABLE.look(line, facts.of(Matches))
    return ""


def _rule(facts: Facts) -> Iterable[Finding]:
    return findings(facts.of(Matches))


def _checked(facts: Facts) -> Iterator[str]:
    logs = [one for one in facts.inputs if not one.problem and one.kind != "flight recorder dump"]
    if logs:
        yield f"{len(logs)} texts for {len(ALL)} messages that name a fault"


SIGNATURES = Topic("messages", rules=(_rule,), checked=_checked, collect=_collect)
