"""Logits: the one tensor of a step whose size a request gives away: batch x sequence x vocabulary x bytes / tp.

Hand calculation: 8192 tokens x 128,256 x 2 bytes = 1.96 GiB. In 2 bytes as the head writes them, in 4 as the loss needs
them; [batch, sequence, vocabulary / tp] where the head is vocabulary-parallel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from meshwright.diagnose.memory.job import Job
from meshwright.diagnose.memory.oom import Oom
from meshwright.diagnose.memory.sizes import MIB

TOLERANCE = 0.02
"""Of the request: the last token's shift and the rounding of the printed size (two decimals) stay below it."""
WIDTHS = (2, 4)
SMALLEST_GUESS = 256 * MIB
"""Requests below it are divided by too many vocabularies to say anything."""
COMMON_VOCABULARIES = {
    32000: "Llama 2, Mistral", 50257: "GPT-2", 50304: "GPT-NeoX, GPT-2 padded", 65024: "Falcon, ChatGLM",
    100352: "Phi-4, DBRX", 102400: "DeepSeek", 128256: "Llama 3", 129280: "DeepSeek-V3", 151936: "Qwen 2 and 3",
    152064: "Qwen 2 large", 201088: "gpt-oss", 202048: "Llama 4", 248320: "Qwen 3.5", 256000: "Gemma",
}  # fmt: skip
"""By their configurations on the Hugging Face hub."""


@dataclass(frozen=True, slots=True)
class Match:
    """A request that logits explain."""

    batch: int
    sequence: int
    vocabulary: int
    width: int
    """Bytes of an element."""
    tensor: int
    """Ranks that share the vocabulary."""

    @property
    def formula(self) -> str:
        """As people check it."""
        shared = f" / tp {self.tensor}" if self.tensor > 1 else ""
        tokens = f"batch {self.batch:,} x sequence {self.sequence:,}"
        return f"{tokens} x vocabulary {self.vocabulary:,} x {self.width} bytes{shared}"

    @property
    def size(self) -> float:
        """Bytes."""
        return self.batch * self.sequence * self.vocabulary * self.width / self.tensor


def matched(oom: Oom, job: Job) -> Match | None:
    """The logits whose size is the request's, where batch, sequence and vocabulary are known."""
    if oom.request is None or not job.vocabulary or not job.sequence:
        return None
    near: list[tuple[float, Match]] = []
    for width in WIDTHS:
        for tensor in sorted({1, max(1, job.tensor)}):
            one = Match(max(1, job.batch), job.sequence, job.vocabulary, width, tensor)
            near.append((abs(one.size / oom.request - 1) if oom.request else 1.0, one))
    off, best = min(near, key=lambda pair: pair[0])
    return best if off <= TOLERANCE else None


def guesses(oom: Oom) -> Iterator[str]:
    """Common vocabularies that divide the request into a power of two of tokens, within the printed rounding."""
    if oom.request is None or oom.request < SMALLEST_GUESS or oom.request > 2.0**50:
        return
    for words, models in COMMON_VOCABULARIES.items():
        if words & (words - 1) == 0:
            continue  # a power of two divides every round request
        for width in WIDTHS:
            tokens = oom.request / (words * width)
            power = 2 ** max(0, round(tokens).bit_length() - 1)
            for whole in (power, power * 2):
                if whole >= 512 and abs(whole * words * width - oom.request) <= max(1.0, oom.request_rounding):
                    yield f"{whole:,} tokens x {words:,} ({models}) x {width} bytes"
