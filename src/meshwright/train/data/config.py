"""DataConfig: which text, which tokenizer, cut and ordered how."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from meshwright.train.data.errors import DataError


@dataclass(frozen=True)
class DataConfig:
    """A data set and how it becomes samples. Raises DataError for impossible values."""

    source: str | tuple[str, ...] = "stdlib"
    """`stdlib`: the sources of Python's standard library. `synthetic`: uniform random tokens. `synthetic:chain`: tokens
    that a model can learn. Else files: a path, a glob, a folder or several of them; .txt, .jsonl and .json.gz (one
    record a line), both also .gz, .parquet; or one folder (or its tokens.bin) that an earlier run tokenized."""
    tokenizer: str = "bytes"
    """`bytes`: 256 ids and an end of document. Else a Hugging Face tokenizer.json (or its folder), `tiktoken:NAME`,
    `tiktoken:NAME:FILE` or a tiktoken rank file (.tiktoken, .bpe)."""
    end_token: str = ""
    """Name of the token that ends a document; empty: what the tokenizer itself calls so."""
    text_key: str = "text"
    """The JSON key or Parquet column of the text. A record without it may have `prompt` and `completion` (the prompt is
    no target), or `tokens` and optionally `loss_mask` (0: no target)."""
    seq_len: int = 512
    """Tokens of a sample."""
    seed: int = 0
    """Of the order, and of synthetic tokens."""
    shuffle: bool = True
    """Each epoch in another order; False: in the order of the files."""
    isolate_documents: bool = False
    """Packed documents do not see each other: positions restart and no target crosses a border."""
    validation_share: float = 0.0
    """Share of the samples that is held out, spread evenly over the stream."""
    cache_dir: str = ""
    """Where tokenized data are kept; empty: $MESHWRIGHT_CACHE, or meshwright in the user's cache folder."""

    def __post_init__(self) -> None:
        if not isinstance(self.source, str):
            words = tuple(self.source)
            object.__setattr__(self, "source", words[0] if len(words) == 1 else words)
        if not self.source or not all(self.sources):
            raise DataError("data.source is empty.", ["stdlib", "synthetic", "synthetic:chain", "a path or glob"])
        if self.seq_len < 1:
            raise DataError(f"data.seq_len is {self.seq_len}.", ["1 or more"])
        if not 0 <= self.seed < 2**63:
            raise DataError(f"data.seed is {self.seed}.", ["0 to 2**63 - 1"])
        if not 0 <= self.validation_share < 1:
            raise DataError(f"data.validation_share is {self.validation_share}.", ["0 or more and less than 1"])

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources one by one."""
        return (self.source,) if isinstance(self.source, str) else self.source

    @property
    def cache(self) -> Path:
        """The folder of tokenized data."""
        if self.cache_dir:
            return Path(self.cache_dir).expanduser()
        if chosen := os.environ.get("MESHWRIGHT_CACHE"):
            return Path(chosen).expanduser()
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(home) / "meshwright"
