"""Every topic of a diagnosis, in the order in which files are offered to them."""

from __future__ import annotations

from meshwright.diagnose.configuration.topic import CONFIGURATION
from meshwright.diagnose.metrics.topic import METRICS
from meshwright.diagnose.recorder.topic import RECORDER
from meshwright.diagnose.signatures.topic import SIGNATURES
from meshwright.diagnose.topic import Topic

TOPICS: tuple[Topic, ...] = (
    RECORDER,
    SIGNATURES,
    METRICS,
    CONFIGURATION,
)
