"""Every topic of a diagnosis, in the order in which files are offered to them."""

from __future__ import annotations

from meshwright.diagnose.configuration.topic import CONFIGURATION
from meshwright.diagnose.described.topic import DESCRIBED
from meshwright.diagnose.ends.topic import ENDS
from meshwright.diagnose.host.topic import HOST
from meshwright.diagnose.memory.topic import MEMORY
from meshwright.diagnose.metrics.topic import METRICS
from meshwright.diagnose.network.topic import NETWORK
from meshwright.diagnose.recorder.topic import RECORDER
from meshwright.diagnose.signatures.topic import SIGNATURES
from meshwright.diagnose.topic import Topic
from meshwright.diagnose.traces.topic import TRACES
from meshwright.diagnose.watchdog.topic import WATCHDOG

TOPICS: tuple[Topic, ...] = (
    RECORDER,
    SIGNATURES,
    MEMORY,
    HOST,
    WATCHDOG,
    *NETWORK,
    TRACES,
    METRICS,
    CONFIGURATION,
    # What is asked last, where none of the others knows the cause of an error.
    ENDS,
    DESCRIBED,
)
