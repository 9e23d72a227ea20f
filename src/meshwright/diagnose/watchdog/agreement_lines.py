"""Lines of checks that compare ranks: monitored barriers (gloo) and fingerprints (TORCH_DISTRIBUTED_DEBUG=DETAIL).

The texts are those of torch/csrc/distributed/c10d/{ProcessGroupGloo,ProcessGroupWrapper}.cpp; before torch 2.1 the
second fingerprint may lack its shape and the comma after its number.
"""

from __future__ import annotations

import re

from meshwright.diagnose.logs.line import Line
from meshwright.diagnose.watchdog.facts import Barrier, Differing, Print, Watchdog, add

_MISMATCH = re.compile(
    r"Detected mismatch between collectives on ranks\. Rank (\d{1,9}) is running (?:inconsistent )?collective:\s*"
    r"(.{0,1500}?)(?:,\s*but Rank (\d{1,9}) is running collective:\s*(.{0,1500}))?$"
)
_SEQUENCE, _OPERATION = re.compile(r"SequenceNumber=(\d{1,18})"), re.compile(r"OpType=(\w+)")
_SHAPE, _DTYPE = re.compile(r"TensorShape=\[([\d, ]*)\]"), re.compile(r"TensorDtypes=(\w+)")
_ABSENT = re.compile(r"Ranks? (\d{1,9}(?:(?:, ?| and )\d{1,9})*),? ?failed to pass monitoredBarrier in (\d{1,12}) ?ms")
_REACHED = re.compile(
    r"Rank (\d{1,9}) successfully reached monitoredBarrier, but received errors while waiting for send/recv from "
    r"rank (\d{1,9})"
)


def collect_agreement(line: Line, known: Watchdog) -> bool:
    """Whether the line is of such a check, and then it is kept."""
    if (found := _MISMATCH.search(line.text)) is not None:
        if found[3] is not None:
            pair = (_print(int(found[1]), found[2]), _print(int(found[3]), found[4]))
            add(known.differing, Differing(line, pair))
    elif (found := _ABSENT.search(line.text)) is not None:
        absent = tuple(int(one) for one in re.findall(r"\d+", found[1]))
        add(known.barriers, Barrier(line, None, absent, int(found[2]) / 1e3))
    elif (found := _REACHED.search(line.text)) is not None:
        add(known.barriers, Barrier(line, int(found[1]), (int(found[2]),), None))
    else:
        return False
    return True


def _print(rank: int, text: str) -> Print:
    text = text.partition("Collectives differ")[0]
    sequence, operation = _SEQUENCE.search(text), _OPERATION.search(text)
    shape, dtype = _SHAPE.search(text), _DTYPE.search(text)
    return Print(
        rank,
        int(sequence[1]) if sequence else None,
        operation[1] if operation else re.sub(r"\W.*", "", text.strip()),
        tuple(int(one) for one in shape[1].replace(" ", "").split(",") if one) if shape else None,
        dtype[1] if dtype else "",
    )
