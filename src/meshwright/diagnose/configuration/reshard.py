"""Checkpoints that were written by another layout or for another vocabulary, told by the sizes in the refusal.

Texts: DeepSpeed runtime/zero/stage_1_and_2.py and stage3.py (DP world size), Megatron-LM training/checkpointing.py
(value from checkpoint), torch.nn.Module.load_state_dict (size mismatch), ATen (size of tensor a … b).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from meshwright.diagnose.configuration.names import name_of
from meshwright.diagnose.configuration.settings import Job
from meshwright.diagnose.facts import Facts
from meshwright.diagnose.finding import CERTAIN, ERROR, LIKELY, POSSIBLE, Finding
from meshwright.diagnose.logs.cited import evidence
from meshwright.diagnose.logs.line import Line

HINTS = ("DP world size of", "value from checkpoint", "size mismatch for", "size of tensor a")
_DP = re.compile(r"DP world size of (\d+) but the current world size is (\d+)")
_ARGUMENT = re.compile(r"(?<!\w)(\w{1,80}+) value from checkpoint \((\w+)\) is not equal to [\w ]*?\((\w+)\)")
_SHAPES = re.compile(
    r"size mismatch for ([\w.]+): copying a param with shape torch\.Size\(\[([\d, ]+)\]\) from checkpoint, "
    r"the shape in current model is torch\.Size\(\[([\d, ]+)\]\)"
)
_TENSORS = re.compile(r"size of tensor a \((\d{1,12})\) must match the size of tensor b \((\d{1,12})\)")
VOCABULARIES = (
    32000, 32001, 32016, 32064, 49152, 50257, 50265, 50272, 50304, 50432, 51200, 64000, 65024, 92544, 100277,
    100352, 102400, 125696, 128000, 128256, 129280, 131072, 151643, 151646, 151665, 151669, 151936, 152064,
    200064, 201088, 250002, 250112, 250680, 250880, 256000, 262144, 262208,
)  # fmt: skip
"""Entries of vocabularies and tokenizers of public models, padded and not: their config.json files."""
NEAR = 0.15
"""Two vocabularies of the same model after adding tokens or padding differ by less."""
SMALLEST_SHARD = 512
"""Rows. Smaller dimensions are seldom shards of a vocabulary."""
MOST = 64


@dataclass
class Mismatches:
    """Lines that tell two sizes."""

    lines: list[Line] = field(default_factory=list)


def collect(line: Line, facts: Facts) -> None:
    """Keeps a line that tells two sizes."""
    lines = facts.of(Mismatches).lines
    if len(lines) < MOST:
        lines.append(line)


def resharded(line: Line, job: Job) -> Iterator[Finding]:
    """What the two sizes say."""
    text = line.text
    if found := _DP.search(text):
        yield _finding(
            line, CERTAIN, f"The optimizer's shards in the checkpoint are those of {found[1]} data-parallel ranks, and "
            f"the job has {found[2]}.",
            (f"Resume on {found[1]} data-parallel ranks, or convert to a universal checkpoint (ds_to_universal.py).",
             "Or load the weights only (load_optimizer_states=False)."), 2,
        )  # fmt: skip
    elif (found := _ARGUMENT.search(text)) and (found[2] != found[3]):
        # A padded vocabulary is a layout's, too, but it is a signature's.
        if (name_of(found[1]) or "vocab" in found[1]) and "padded" not in found[1]:
            yield _finding(
                line, CERTAIN, f"The checkpoint was written with {found[1]} {found[2]}, and the job has {found[3]}.",
                ("Convert it to the new layout (Megatron-LM: tools/checkpoint/convert.py, or torch_dist format).",
                 f"Or take {found[1]} {found[2]}."), 2,
            )  # fmt: skip
    elif found := _SHAPES.search(text):
        yield from _shapes(line, found[1], _size(found[2]), _size(found[3]))
    elif found := _TENSORS.search(text):
        yield from _tensors(line, int(found[1]), int(found[2]), job)


def _size(text: str) -> tuple[int, ...]:
    return tuple(int(one) for one in re.findall(r"\d{1,15}", text))


def _shapes(line: Line, name: str, saved: tuple[int, ...], built: tuple[int, ...]) -> Iterator[Finding]:
    differing = [(a, b) for a, b in zip(saved, built, strict=False) if a != b]
    if len(saved) != len(built) or len(differing) != 1 or not min(differing[0]):
        return
    a, b = differing[0]
    large, small = max(a, b), min(a, b)
    if large % small == 0 and 2 <= large // small <= 1024:
        what = f"Of {name} the checkpoint has {a} rows or columns and the model {b}: {large // small} times " + (
            "as many: it was saved with fewer tensor-parallel ranks."
            if a > b
            else "fewer: it holds one shard of several."
        )
        yield _finding(line, LIKELY, what, ("Merge or split the checkpoint for the job's tensor degree.",), 1)
    elif re.search(r"embed|wte|lm_head|output\.weight", name) and large - small < NEAR * large:
        yield _vocabulary(line, LIKELY, f"{name} has {a} rows in the checkpoint and {b} in the model")


def _tensors(line: Line, a: int, b: int, job: Job) -> Iterator[Finding]:
    """ceil(vocabulary / ranks) rows lie on a rank: both shards × ranks are near vocabularies."""
    large, small = max(a, b), min(a, b)
    if a == b or small < SMALLEST_SHARD or large - small > NEAR * large:
        return
    told = [value for value in (job.number("vocabulary"), job.number("padded_vocabulary")) if value]
    for ranks in [job.world] if job.world else (1, 2, 4, 8, 16, 32, 64):
        whole = {one for one in (*VOCABULARIES, *told) if -(-one // ranks) in (a, b)}
        if whole:
            known = sorted(whole)[0]
            text = (
                f"Shards of {a} and {b} rows: times {ranks} ranks they are about {a * ranks} and {b * ranks}, and a "
                f"vocabulary "
                f"of {known} is one of them; they differ by about {(large - small) * ranks} entries"
            )
            yield _vocabulary(line, LIKELY if job.world or ranks == 1 else POSSIBLE, text)
            return
    if large > 2 * SMALLEST_SHARD and job.world:
        yield _vocabulary(line, POSSIBLE, f"Shards of {a} and {b} rows on {job.world} ranks: together they differ by "
            f"about "
                          f"{(large - small) * job.world} rows")  # fmt: skip


def _vocabulary(line: Line, confidence: str, text: str) -> Finding:
    return _finding(
        line, confidence, f"{text}: the checkpoint and the model have vocabularies of different size.",
        ("Resize the model's embeddings to the checkpoint's vocabulary before sharding, or the other way round.",
         "Pad both to the same multiple of the number of shards."), 2,
    )  # fmt: skip


def _finding(line: Line, confidence: str, cause: str, change: tuple[str, ...], weight: int) -> Finding:
    return Finding(
        "checkpoint_reshard", ERROR, confidence, (), cause, (evidence(line),),
        "Compare the sizes of the embedding in the checkpoint and in the model.", change, line.when, weight=weight,
    )  # fmt: skip
