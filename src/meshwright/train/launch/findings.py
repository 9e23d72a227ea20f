"""What the rules of `diagnose` say of a run of ours that failed: the first thing that its launcher prints."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from pickle import PickleError

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.finding import ERROR, Finding
from meshwright.diagnose.recorder.read import read_dump
from meshwright.diagnose.recorder.topic import RECORDER
from meshwright.diagnose.told import lines_of
from meshwright.diagnose.topics import TOPICS
from meshwright.diagnose.unpickle import load_plain
from meshwright.spec.errors import RequestError
from meshwright.train.launch.failures import Failure

STILL_S = 1.0
"""Seconds without a new collective after which a run may be taken to hang."""


def findings_of(folder: Path, *, hangs: bool) -> tuple[Finding, ...]:
    """Errors that the files in `folder` are evidence of, the most important first.

    `hangs`: no rank failed by itself. That others wait for one that did is no news, and dumps are not read then.
    """
    topics = [one for one in TOPICS if not one.last_resort and (hangs or one is not RECORDER)]
    try:
        found = diagnose([folder], topics).findings
    except RequestError:  # nothing there that can be read
        return ()
    return tuple(one for one in found if one.severity == ERROR and not one.consequence)


def stood_still(folder: Path) -> bool:
    """Whether the ranks whose dumps lie in `folder` had begun no collective for longer than ever before when these were
    written: ranks that were only slow are seen in the middle of a step, where one always waits for another."""
    newest = written = longest = 0
    for path in folder.glob("recorder-*.pickle"):
        try:
            dump = read_dump(load_plain(path.read_bytes()), str(path))
        except (OSError, PickleError, RequestError):
            continue
        begun = sorted(one.created_ns for one in dump.entries)
        newest = max([newest, *begun])
        longest = max([longest, *(after - before for before, after in pairwise(begun))])
        written = max(written, path.stat().st_mtime_ns)
    return written - newest > max(STILL_S * 1e9, 2 * longest)


def finding_lines(folder: Path, cause: Failure) -> Iterator[str]:
    """The first of them in lines for a terminal; none where the rules find nothing."""
    for one in findings_of(folder, hangs=cause.is_echo)[:1]:
        yield from lines_of(one)
