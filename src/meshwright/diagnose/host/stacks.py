"""py-spy dumps of several ranks: who is in a collective, and what the others do instead.

Format of py-spy: `Process PID: command`, `Thread ID (state): "name"`, `    function (file:line)`, innermost first.
A main thread in a collective waits; the one that is elsewhere is waited for. A dump is one moment: nothing is sure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import POSSIBLE, WARNING, Evidence, Finding
from meshwright.diagnose.host.facts import MOST, HostFacts, Reading, Stack
from meshwright.diagnose.logs.late import Late
from meshwright.diagnose.logs.line import Line

MOST_FRAMES = 64
INNERMOST = 12
"""Frames in which a collective is looked for: outer frames of each program name a module of torch.distributed."""
_PROCESS = Late(r"^\s*Process (\d{1,8}): ?(.*)")
_THREAD = Late(r"^\s*Thread (?:0x[0-9A-Fa-f]+|\d+)(?: \(([^)]*)\))?(?:: \"?([^\"]*)\"?)?\s*$")
_FRAME = Late(r"^\s+(\S.{0,300}?) \(([^()]{1,400}?)(?::(\d+))?\)\s*$")
_COLLECTIVE = Late(  # sockets and pools have functions of the same names
    r"^(?:all_?reduce|all_?gather|reduce_?scatter|broadcast|barrier|monitored_barrier|all_?to_?all|gather|scatter|send|recv|"
    r"batch_isend_irecv|isend|irecv|reduce)\w* \((?!(?:\S*/)?(?:ssl|socket|selectors|functools)\.py|"
    r"(?:\S*/)?(?:asyncio|multiprocessing|http|urllib3|aiohttp|zmq)/)|torch/distributed/(?:distributed_c10d|c10d_logger|_functional_coll)|"
    r"deepspeed/comm/|^(?:item|synchronize|_sync\w*|tolist|wait_tensor|wait) \(.*(?:torch|<)"
)
_IGNORED = Late(
    r"_worker_loop|torch/distributed/(?:run|launch|elastic)|multiprocessing/resource_tracker|_monitor_workers"
)
_NEUTRAL = Late(r"^(?:_engine_run_backward|backward|run_backward) \(|nccl|destroy_process_group")
_INSTEAD = (
    ("compile_skew", Late(r"torch/_dynamo|torch/_inductor|torch/_functorch|triton/(?:compiler|runtime)"),
     "compiles (torch.compile, Triton)",
     ("Compile on all ranks before the first collective (a warm-up and a barrier), with a shared compile cache.",
      "Mark dynamic dimensions on all ranks, so that none compiles again alone.")),
    ("dataloader_bound", Late(r"torch/utils/data|_next_data|_try_get_data|dataloader"),
     "waits for data",
     ("Use more or faster workers, pinned memory and prefetch; decode offline.",
      "Give every rank as much data of the same cost.")),
    ("long_non_collective_section", Late(r"checkpoint|\bsave|serialization|torch/serialization|safetensors"),
     "writes or reads a checkpoint",
     ("Let all ranks save their shards (torch.distributed.checkpoint), asynchronously.",
      "Raise the process group's timeout for that section, with the reason beside it.")),
)  # fmt: skip
_STORAGE = Late(
    r"\((?:\S*/)?(?:\w*data\w*|\w*loader\w*|\w*reader\w*|s3\w*|gcs\w*|tarfile|zipfile|gzip|h5py|lmdb)(?:\.py|/)|"
    r"\b(?:boto3?|botocore|fsspec|s3fs|gcsfs|webdataset|pyarrow|tokenizers|PIL|decord|urllib3?|requests|aiohttp|http)/|"
    r"^(?:get_object|read_parquet|load_dataset|collate\w*|__getitem__|__next__|readinto|read|recv_into) \("
)
"""Frames that read from storage or a server, where no frame tells of anything else: names of public libraries."""
_ONCE = Late(r"^_?(?:pre_?process|prepare|download|tokenize|build|index|evaluate|upload|export|push|convert)\w* \(")
"""Work that is done once, often by one rank for all: it is no waiting for the next batch."""


def read(line: Line, found: HostFacts, where: Reading) -> str:
    """Adds a line of a dump; its kind, or ""."""
    text = line.text
    if text.lstrip().startswith("Process ") and (match := _PROCESS.match(text)):
        if len(found.stacks) < MOST:
            found.stacks.append(Stack(line, int(match[1]), match[2][:400]))
            where.mode = "stack"
        return ""
    if where.mode != "stack":
        return ""
    stack = found.stacks[-1]
    if match := _THREAD.match(text):
        stack.threads.append((match[2] or "", []))
        return "py-spy dump"
    if stack.threads and (match := _FRAME.match(text)) and len(stack.threads[-1][1]) < MOST_FRAMES:
        stack.threads[-1][1].append(f"{match[1]} ({match[2]}{':' + match[3] if match[3] else ''})")
        return "py-spy dump"
    if text.strip() and not text.startswith(("Python v", " ")):
        where.mode = "stack" if not stack.threads else ""
    return ""


def main_frames(stack: Stack) -> Sequence[str]:
    """The main thread's frames, the innermost first; of the first thread where none has that name."""
    named = [frames for name, frames in stack.threads if name == "MainThread"]
    return (named or [frames for _, frames in stack.threads] or [[]])[0]


def waits(frames: Sequence[str]) -> bool:
    """Whether a thread is in a collective, or waits for the device."""
    return any(_COLLECTIVE.search(one) for one in frames[:INNERMOST])


def find_stacks(facts: Facts) -> Iterator[Finding]:
    """Ranks that are elsewhere while others are in a collective."""
    stacks = [one for one in facts.of(HostFacts).stacks if (frames := main_frames(one)) and not _ignored(frames)]
    waiting = [one for one in stacks if waits(main_frames(one))]
    others = [one for one in stacks if one not in waiting and not _NEUTRAL.search(main_frames(one)[0])]
    if waiting and others and len(others) <= len(waiting):
        for one in others:
            yield _elsewhere(one, waiting)
    elif stacks and not waiting:
        data = [one for one in stacks if _instead(main_frames(one))[0] == "dataloader_bound"]
        if len(data) == len(stacks):
            yield _finding(data, "dataloader_bound", "Every dumped process waits for its DataLoader.", _INSTEAD[1][3])


def _ignored(frames: Sequence[str]) -> bool:
    return any(_IGNORED.search(one) for one in frames)


def _instead(frames: Sequence[str]) -> tuple[str, str, tuple[str, ...]]:
    """(category, what it does, what to change) of a rank outside of collectives, by the innermost frame that tells."""
    for one in frames:
        for category, pattern, what, change in _INSTEAD:
            if pattern.search(one):
                return category, what, change
    told = next((one for one in reversed(frames[:INNERMOST]) if _STORAGE.search(one)), "")
    if told and not any(_ONCE.search(one) for one in frames):
        return "dataloader_bound", f"reads its data, in {told}", _INSTEAD[1][3]
    change = (
        "Look at that line: a branch that only some ranks take, or host work that takes longer than the timeout.",
        "Take a second dump after a minute, to see whether it moves.",
    )
    return "long_non_collective_section", f"is in {frames[0]}", change


def _elsewhere(one: Stack, waiting: Sequence[Stack]) -> Finding:
    category, what, change = _instead(main_frames(one))
    who = f"Rank {one.line.rank}" if one.line.rank is not None else f"Process {one.pid}"
    cause = f"{who} {what} while {len(waiting)} other processes wait in a collective ({main_frames(waiting[0])[0]})."
    return _finding([one, waiting[0]], category, cause, change)


def _finding(stacks: Sequence[Stack], category: str, cause: str, change: tuple[str, ...]) -> Finding:
    shown = tuple(
        Evidence(
            one.line.path, " < ".join(main_frames(one)[:4])[:400], one.line.number, f"process {one.pid}", one.line.rank
        )
        for one in stacks[:8]
    )
    ranks = tuple(sorted({one.line.rank for one in stacks[:1] if one.line.rank is not None}))
    return Finding(
        category, WARNING, POSSIBLE, ranks, cause, shown,
        "A second dump of the same processes: the culprit has moved or not, the others have not.", change, weight=1,
    )  # fmt: skip
