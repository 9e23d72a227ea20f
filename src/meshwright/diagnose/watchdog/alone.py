"""A watchdog's timeout without a proof of who left the common order: what else it may tell, and else a consequence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from meshwright.diagnose.ends.facts import Ends
from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import ERROR, LIKELY, POSSIBLE, WARNING, Finding
from meshwright.diagnose.logs.cited import earliest, evidence
from meshwright.diagnose.told import ranks_text
from meshwright.diagnose.watchdog.desync import BRANCH, GRADIENTS, STEPS, TRACE, find_desync, is_small
from meshwright.diagnose.watchdog.doing import DATA, END, EVALUATION, SAVE
from meshwright.diagnose.watchdog.facts import Doing, Timeout, Watchdog
from meshwright.diagnose.watchdog.groups import Table, tables
from meshwright.diagnose.watchdog.words import told

BLOCKED = 2.0
"""Times the timeout: the watchdog looks about once a second, so a collective found so late means it was blocked."""
FIRST = 10
"""Numbers up to which a collective is one of the first of its group: start-up makes a few."""
NEAR = 200
"""Lines of one log between a phase's text and the timeout in it: 8 ranks print about 20 each when they give up."""


def find_alone(facts: Facts) -> list[Finding]:
    """What timeouts say, where no numbers prove a desync."""
    known = facts.of(Watchdog)
    found = [*_blocked(known), *_stuck(known)]
    if not known.timeouts or find_desync(facts):
        return found
    groups = tables(known)
    causes = [*_long_section(known), *_after_phase(known), *_concurrent(groups, known)]
    if not causes:
        causes = list(_bare(groups, known, facts))
    return [*found, *causes]


def _blocked(known: Watchdog) -> Iterator[Finding]:
    """`ran for` far above the timeout (pytorch#118369: 25,624,887 ms with 1,800,000)."""
    late = [one for one in known.timeouts if one.ran_s > BLOCKED * one.limit_s > 0]
    if late:
        worst = max(late, key=lambda one: one.ran_s / one.limit_s)
        yield Finding(
            "watchdog_heartbeat", ERROR, POSSIBLE, _whos(late),
            f"A collective with a timeout of {worst.limit_s:,.0f} s was given up only after {worst.ran_s:,.0f} s: the "
            "watchdog itself was blocked, so the process stood still, not only the collective.",
            tuple(evidence(one.line, one.place.who) for one in late[:8]),
            "py-spy dump --native of the process while it stands still; whether the node was suspended or swapped.",
            ("Look for what blocks the host: the GIL, a CUDA call that does not return, swapping, a suspended node.",),
            earliest(one.line for one in late), weight=1,
        )  # fmt: skip


def _stuck(known: Watchdog) -> Iterator[Finding]:
    """`watchdog got stuck for N seconds`: a symptom of a blocked host; after training it is a teardown."""
    if not known.stuck:
        return
    ended = next((one for kept in known.doing.values() for one in kept if one.kind == END), None)
    first = known.stuck[0]
    group = f" of {first.place.group.title}" if first.place.group else ""
    phase = " after the training had ended, while groups were taken down" if ended else ""
    yield Finding(
        "watchdog_heartbeat", WARNING if ended else ERROR, POSSIBLE,
        tuple(sorted({one.place.who for one in known.stuck if one.place.who is not None})),
        f"The watchdog{group} made no progress for {first.seconds:,.0f} s{phase}: a CUDA or NCCL call, the GIL or the "
        "host kept it from running.",
        (*(evidence(one.line, one.place.who) for one in known.stuck[:6]), *((evidence(ended.line),) if ended else ())),
        "py-spy dump --native of the process; memory and swap of the node; whether the last checkpoint is complete.",
        (
            "Call destroy_process_group on all ranks in the same order, after a barrier, when the training ends.",
            "Look for host work that holds the GIL or swaps (offload, saving, data loading) at that time.",
            "Raise TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC only once it is known that the process makes progress.",
        ),
        first.line.when, weight=1,
    )  # fmt: skip


def _long_section(known: Watchdog) -> Iterator[Finding]:
    """One process was still at its data when the others' first collective ran out of time."""
    first = [one for one in known.timeouts if one.sequence is None or one.sequence <= FIRST]
    busy = [
        one for kept in known.doing.values() for one in kept
        if one.kind == DATA and any(_before(one, timeout) for timeout in first)
    ]  # fmt: skip
    if not first or not busy:
        return
    doing = max(busy, key=lambda one: one.elapsed_s or 0.0)
    limit = first[0].limit_s
    as_long = doing.elapsed_s is not None and doing.elapsed_s >= 0.9 * limit
    spent = f" for {doing.elapsed_s:,.0f} s" if doing.elapsed_s is not None else ""
    yield Finding(
        "long_non_collective_section", ERROR, LIKELY if as_long else POSSIBLE,
        () if doing.line.rank is None else (doing.line.rank,),
        f"A process was at its data{spent} while others waited in {told(first[0])}, one of the first collectives, "
        f"whose timeout is {limit:,.0f} s: late, not deadlocked.",
        (evidence(doing.line), *(evidence(one.line, one.place.who) for one in first[:6])),
        "Whether the job goes on when the data are prepared beforehand.",
        (
            "Prepare the data before init_process_group, or in a job of its own, and cache them.",
            "Or give init_process_group a timeout that this work fits in (accelerate: InitProcessGroupKwargs).",
        ),
        earliest(one.line for one in first), weight=3,
    )  # fmt: skip


def _after_phase(known: Watchdog) -> Iterator[Finding]:
    """A barrier or a scalar that some ranks wait in after a text of saving, evaluating or ending."""
    small = [one for one in known.timeouts if is_small(one)]
    if not small or len(small) < len(known.timeouts):
        return
    phase = next(
        (one for kept in known.doing.values() for one in reversed(kept)
         if one.kind in (SAVE, END, EVALUATION) and any(_before(one, timeout) for timeout in small)), None
    )  # fmt: skip
    if phase is None:
        return
    whos = _whos(small)
    few = len(whos) == 1 or (known.world and 2 * len(whos) < known.world)
    yield Finding(
        "rank_conditional_collective", ERROR, LIKELY if few else POSSIBLE, whos,
        f"{ranks_text(whos).capitalize() if whos else 'A rank'} waited in {told(small[0])}, a barrier or a flag, after "
        f"{phase.line.text.strip()[:80]!r}: others did not call it there.",
        (evidence(phase.line), *(evidence(one.line, one.place.who) for one in small[:6])),
        TRACE, BRANCH, earliest(one.line for one in small), weight=2,
    )  # fmt: skip


def _concurrent(groups: Sequence[Table], known: Watchdog) -> Iterator[Finding]:
    """All groups gave up at once, in each all ranks at the same number: nobody left the common order."""
    stuck = [table for table in groups if len(table.waiting()) > 1]
    whos = {one.who for table in stuck for one in table.waiting()}
    if len(stuck) < 2 or (known.world and len(whos) < known.world):
        return
    rows = [one.first for table in stuck for one in table.waiting() if one.first]
    yield Finding(
        "concurrent_communicators", ERROR, POSSIBLE, (),
        f"{len(stuck)} groups gave up at once, in each all members at the same number: no rank left the common order, "
        "so the groups' kernels or the network block each other.",
        tuple(evidence(one.line, one.place.who) for one in rows[:8]),
        "NCCL_LAUNCH_ORDER_IMPLICIT=1, or the same job with one stream for all groups; nccl-tests on these nodes.",
        (
            "Call the collectives of different groups in one order on all ranks; NCCL_LAUNCH_ORDER_IMPLICIT=1.",
            "CUDA_DEVICE_MAX_CONNECTIONS=1, or no overlap of the groups' collectives.",
        ),
        earliest(one.line for one in rows), weight=2,
    )  # fmt: skip


def _bare(groups: Sequence[Table], known: Watchdog, facts: Facts) -> Iterator[Finding]:
    """Nothing but a timeout: what it may be goes by the operation, and the ranks that are silent are suspects."""
    one = known.timeouts[0]
    category, change = _usual(one)
    present = set(_whos(known.timeouts))
    everyone = set(range(known.world)) or {rank for given in facts.inputs for rank in given.ranks}
    silent = sorted(everyone - present) if len(groups) == 1 and groups[0].group.key in ("", "default") else []
    suspects = tuple(silent) if silent and 2 * len(silent) < len(everyone) else ()
    dead = sorted(facts.of(Ends).died() - present)
    told_of = f" {ranks_text(suspects).capitalize()} printed none: look there first." if suspects else ""
    if dead:
        suspects, told_of = (), f" {ranks_text(dead).capitalize()} had ended by an error before: see there."
    absent = "" if told_of else " No line tells who did not come."
    yield Finding(
        category, ERROR, POSSIBLE, suspects,
        f"{ranks_text(sorted(present)).capitalize() if present else 'A rank'} waited {one.limit_s:,.0f} s in "
        f"{told(one)} and gave up.{told_of or absent}",
        tuple(evidence(timeout.line, timeout.place.who) for timeout in known.timeouts[:8]),
        f"The logs of all ranks from before that time. {TRACE}", change, earliest(one.line for one in known.timeouts),
        consequence=not suspects, weight=int(bool(suspects)),
    )  # fmt: skip


def _usual(one: Timeout) -> tuple[str, tuple[str, ...]]:
    if one.operation in GRADIENTS and not is_small(one):
        return "uneven_inputs", STEPS
    return "rank_conditional_collective", BRANCH


def _before(doing: Doing, timeout: Timeout) -> bool:
    """Whether a phase is the one in which the timeout fell."""
    if doing.line.path == timeout.line.path:
        # A progress bar has no line end: what interrupts it stands behind it.
        return 0 <= timeout.line.number - doing.line.number <= NEAR
    if doing.line.when is None or timeout.line.when is None:
        return False
    return doing.line.when <= timeout.line.when <= doing.line.when + 2 * timeout.limit_s


def _whos(timeouts: Sequence[Timeout]) -> tuple[int, ...]:
    return tuple(sorted({one.place.who for one in timeouts if one.place.who is not None}))
