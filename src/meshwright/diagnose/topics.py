"""Every topic of a diagnosis, in the order in which files are offered to them."""

from __future__ import annotations

from meshwright.diagnose.network.topic import NETWORK
from meshwright.diagnose.recorder.topic import RECORDER
from meshwright.diagnose.signatures.topic import SIGNATURES
from meshwright.diagnose.topic import Topic
from meshwright.diagnose.watchdog.topic import WATCHDOG

TOPICS: tuple[Topic, ...] = (
    RECORDER,
    SIGNATURES,
    WATCHDOG,
    *NETWORK,
)
