"""Proof from numbers alone that ranks left the common order of collectives.

NCCL matches collectives by their order in a group, so at one number all members must run the same operation, and a rank
whose last number is below that in which others wait never entered it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import CERTAIN, ERROR, LIKELY, POSSIBLE, Finding
from meshwright.diagnose.logs.cited import earliest, evidence
from meshwright.diagnose.told import ranks_text
from meshwright.diagnose.watchdog.doing import DATA, END, EVALUATION, SAVE
from meshwright.diagnose.watchdog.facts import Doing, Timeout, Watchdog
from meshwright.diagnose.watchdog.groups import Member, Table, tables
from meshwright.diagnose.watchdog.words import told

SCALAR = 16
"""Elements up to which a collective is a barrier, a flag, a size or a metric, and no tensor of the model."""
LARGE = 1024
"""Elements from which it is a tensor of the model: a layer norm of a small one has as many."""
ALIKE = ("ALLREDUCE", "BROADCAST", "REDUCE", "ALLGATHER", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE", "REDUCE_SCATTER")
"""Operations to which every rank brings as many elements (PyTorch's OpType names)."""
GRADIENTS = ("ALLREDUCE", "_REDUCE_SCATTER_BASE", "REDUCE_SCATTER", "REDUCE", "COALESCED")

BRANCH = (
    "Call the collective on every rank, and keep only the writing of files in the branch of one rank.",
    "All-reduce every value that decides whether to save, stop or skip, so that all ranks decide alike.",
)
STEPS = (
    "Give every rank as many batches: drop_last, the shortest length over ranks, or a sampler that pads.",
    "Where that is not possible, use torch.distributed.algorithms.join.Join or batches whose loss is 0.",
)
SAME = (
    "Make every rank take the same branch before this collective: modules that only some batches use must take part.",
    "For experts and frozen or conditional parts, add 0 times their output to the loss, or mark them as leaf modules.",
)
TRACE = "TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1: the dumps tell the line of code of each collective."


def find_desync(facts: Facts) -> list[Finding]:
    """For each group the strongest proof: another operation at the same number, a rank behind, numbers apart."""
    known = facts.of(Watchdog)
    found: list[Finding] = []
    for table in tables(known):
        found += list(_differing(table))[:1] or list(_behind(table, known)) or list(_apart(table))
    return found


def _differing(table: Table) -> Iterator[Finding]:
    """Another operation, or another size, at the same number."""
    at: dict[int, dict[int, Timeout]] = defaultdict(dict)
    for member in table.waiting():
        for one in member.timeouts:
            if one.sequence is not None:
                at[one.sequence].setdefault(member.who, one)
    for sequence, by_rank in sorted(at.items()):
        views = {rank: _view(one, list(by_rank.values())) for rank, one in by_rank.items()}
        (common, often), *rest = Counter(views.values()).most_common()
        if not rest:
            continue
        majority = 2 * often > len(views)
        odd = tuple(sorted(rank for rank, view in views.items() if not majority or view != common))
        one, other = by_rank[odd[0]], next(by_rank[r] for r, view in views.items() if view != views[odd[0]])
        branch = _is_branch([one, other])
        yield Finding(
            "rank_conditional_collective" if branch else "mismatched_collectives", ERROR,
            # That they differ is shown; which branch led there is not.
            POSSIBLE if branch else CERTAIN if table.sure else LIKELY, odd,
            f"At number {sequence} of {table.group.title} the ranks run different collectives: "
            + (f"{ranks_text(odd)} {told(one)}, the others {told(other)}." if majority else f"{_each(by_rank)}."),
            tuple(evidence(one.line, rank) for rank, one in sorted(by_rank.items())[:8]),
            TRACE, BRANCH if branch else SAME, earliest(one.line for one in by_rank.values()), weight=3,
        )  # fmt: skip


def _each(by_rank: Mapping[int, Timeout]) -> str:
    """Rank by rank, where no majority says who is odd."""
    return ", ".join(f"rank {rank} {told(one)}" for rank, one in sorted(by_rank.items())[:8])


def _behind(table: Table, known: Watchdog) -> Iterator[Finding]:
    """Ranks that never called the collective in which others wait."""
    waiting = [one for one in table.waiting() if one.first is not None]
    if not waiting:
        return
    stuck = min((one.first for one in waiting if one.first), key=lambda one: one.sequence or 0)
    number = stuck.sequence or 0
    late = [
        one for one in table.members.values()
        if one.first is None and one.enqueued is not None and one.enqueued < number
    ]  # fmt: skip
    for one in sorted(late, key=lambda one: one.who):
        assert one.enqueued is not None
        doing = last_doing(known, one, stuck)
        category, change = _why_behind(stuck, one, doing)
        last = f" Its log's last: {doing.line.text.strip()[:80]}." if doing else ""
        yield Finding(
            category, ERROR, LIKELY if one.idle and doing else POSSIBLE, (one.who,),
            f"Rank {one.who} never entered {told(stuck)}, number {number} of {table.group.title}, in which others "
            f"wait: it is {number - one.enqueued} behind"
            f"{' and had completed all that it called' if one.idle else ''}.{last}",
            (*(evidence(s.line, one.who) for s in one.states[:2]), *((evidence(doing.line, one.who),) if doing else ()),
             *(evidence(w.first.line, w.who) for w in waiting[:4] if w.first)),
            TRACE, change, stuck.line.when, weight=3,
        )  # fmt: skip


def _why_behind(stuck: Timeout, late: Member, doing: Doing | None) -> tuple[str, tuple[str, ...]]:
    if doing is not None and doing.kind == DATA:
        return "long_non_collective_section", ("Do this work before init_process_group, or on every rank alike.",)
    if doing is not None and doing.kind == SAVE:
        return "rank_conditional_collective", BRANCH
    gradients = stuck.operation in GRADIENTS and not is_small(stuck)
    if gradients or (doing is not None and doing.kind in (END, EVALUATION)):
        return "uneven_inputs", STEPS
    return "rank_conditional_collective", BRANCH


def _apart(table: Table) -> Iterator[Finding]:
    """Ranks that wait in collectives of different numbers: some called one more than others."""
    waiting = {one.who: one.first for one in table.waiting() if one.first is not None}
    numbers = Counter(one.sequence for one in waiting.values())
    if len(numbers) < 2:
        return
    (common, often), *_ = numbers.most_common()
    majority = 2 * often > len(waiting)
    odd = tuple(sorted(rank for rank, one in waiting.items() if not majority or one.sequence != common))
    ordered = sorted(waiting.items(), key=lambda pair: pair[1].sequence or 0)
    (low, first), (high, last) = ordered[0], ordered[-1]
    yield Finding(
        "rank_conditional_collective", ERROR, POSSIBLE, odd,
        f"The ranks of {table.group.title} wait in different collectives: rank {low} in number {first.sequence} "
        f"({told(first)}), rank {high} in number {last.sequence} ({told(last)}). They did not call the same before.",
        tuple(evidence(one.line, rank) for rank, one in ordered[:8]),
        TRACE, BRANCH, earliest(one.line for one in waiting.values()), weight=2,
    )  # fmt: skip


def last_doing(known: Watchdog, member: Member, stuck: Timeout) -> Doing | None:
    """What a rank was at last, before the timeout."""
    found = [
        one for (_, rank), kept in known.doing.items() if rank == member.who for one in kept
        if one.line.when is None or stuck.line.when is None or one.line.when <= stuck.line.when
    ]  # fmt: skip
    return found[-1] if found else None


def _view(one: Timeout, others: Sequence[Timeout]) -> tuple[str, int | None]:
    """What must be the same on all ranks; a size only where all tell it and the operation asks for it."""
    sized = one.operation in ALIKE and all(other.elements_in is not None for other in others)
    return one.operation, one.elements_in if sized else None


def _is_branch(pair: Sequence[Timeout]) -> bool:
    """A barrier or a flag against anything else: somebody took another branch, not another size."""
    one, other = pair
    large = any(each.elements_in is not None and each.elements_in >= LARGE for each in pair)
    return any(is_small(each) for each in pair) and (large or one.operation != other.operation)


def is_small(one: Timeout) -> bool:
    """A barrier, a flag, a size or a metric. What is coalesced does not tell its size."""
    if one.operation == "COALESCED":
        return False
    return one.operation == "BARRIER" or (one.elements_in is not None and one.elements_in <= SCALAR)
