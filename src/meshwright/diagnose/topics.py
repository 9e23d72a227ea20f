"""Every topic of a diagnosis, in the order in which files are offered to them."""

from __future__ import annotations

from meshwright.diagnose.recorder.topic import RECORDER
from meshwright.diagnose.signatures.topic import SIGNATURES
from meshwright.diagnose.topic import Topic
from meshwright.diagnose.traces.topic import TRACES

TOPICS: tuple[Topic, ...] = (
    RECORDER,
    SIGNATURES,
    TRACES,
)
