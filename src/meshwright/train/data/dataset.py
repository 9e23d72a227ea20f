"""Dataset: samples by number, from stored or synthetic tokens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from meshwright.train.batch import IGNORED
from meshwright.train.data.build import Report, tokenized
from meshwright.train.data.config import DataConfig
from meshwright.train.data.errors import DataError
from meshwright.train.data.order import EpochOrder, Split
from meshwright.train.data.sources import find_files
from meshwright.train.data.store import HEADER, TOKENS, TokenStore
from meshwright.train.data.synthetic import SyntheticWindows
from meshwright.train.data.tokenizer import check_vocabulary, open_tokenizer
from meshwright.train.data.windows import StoredWindows, Windows


@dataclass(frozen=True)
class Sample:
    """One sequence; every array is int64 [seq_len]."""

    tokens: np.ndarray
    targets: np.ndarray
    """The next token of each, or IGNORED."""
    positions: np.ndarray
    documents: np.ndarray | None
    """From 0 in each sample; None where documents see each other."""


class Dataset:
    """The training samples of a data set, or (`validation`) those held out."""

    def __init__(self, config: DataConfig, windows: Windows, *, held_out: bool = False) -> None:
        self.config, self.windows, self._held_out = config, windows, held_out
        total = len(windows)
        count = round(total * config.validation_share)
        if config.validation_share and not 0 < count < total:
            raise DataError(
                f"data.validation_share {config.validation_share} of {total} samples is {count}; both parts need one.",
                ["0", f"{1 / total:.2g} or more" if total > 1 else "more text"],
            )
        self._split = Split(total, count)

    def __len__(self) -> int:
        return self._split.held_out if self._held_out else self._split.total - self._split.held_out

    def sample(self, index: int) -> Sample:
        """The sample at `index`, 0 ≤ index < len: the same whatever the layout."""
        if not 0 <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        window = self.windows.window(self._split.validation(index) if self._held_out else self._split.training(index))
        targets = window.tokens[1:].copy()
        if window.skipped is not None:
            targets[window.skipped[1:]] = IGNORED
        positions = np.arange(len(targets), dtype=np.int64)
        if window.documents is None:
            return Sample(window.tokens[:-1], targets, positions, None)
        starts = np.diff(window.documents, prepend=window.documents[:1]) != 0
        targets[starts[1:]] = IGNORED
        # A document that began in an earlier window starts anew here: what came before is not seen.
        positions -= np.maximum.accumulate(np.where(starts[:-1], positions, 0))
        return Sample(window.tokens[:-1], targets, positions, window.documents[:-1])

    @property
    def order(self) -> EpochOrder:
        """The endless order of the samples; held-out ones are not shuffled."""
        return EpochOrder(len(self), self.config.seed, self.config.shuffle and not self._held_out)

    @property
    def validation(self) -> Dataset | None:
        """The samples held out; None: none are."""
        return Dataset(self.config, self.windows, held_out=True) if self._split.held_out else None

    @property
    def all_targets(self) -> bool:
        """Every token of every sample is a target."""
        return not (self.windows.skips or self.config.isolate_documents)

    @property
    def identity(self) -> str:
        """Equal where the sample at each place of the order is; to compare across ranks and when resuming."""
        config = self.config
        order = f"seed {config.seed}" if self.order.shuffle else "in order"
        isolated = " isolated" if config.isolate_documents else ""
        part = f" {'validation' if self._held_out else 'training'} {self._split.held_out}"
        return f"{self.windows.identity} seq_len {config.seq_len}{isolated}{part} {order}"

    def describe(self, samples: int | None = None) -> str:
        """One line for the log; with the `samples` that a run takes, how many epochs that is."""
        text = f"{self.windows.describe()}, {len(self):,} samples of {self.config.seq_len:,}"
        if isinstance(self.windows, SyntheticWindows):
            return self.windows.describe()
        if self._split.held_out and not self._held_out:
            text += f" + {self._split.held_out:,} held out"
        return text if samples is None else f"{text}; {samples / len(self):.3g} epochs of {samples:,} samples"


def open_dataset(config: DataConfig, *, vocab: int, progress: Report | None = None) -> Dataset:
    """The data set of `config` for a model of `vocab` ids; tokenizes at the first use, then reads what is stored.

    `progress` is called while tokenizing. Raises DataError.
    """
    if config.source in ("synthetic", "synthetic:chain"):
        chain = config.source == "synthetic:chain"
        windows = SyntheticWindows(vocab, config.seq_len, config.seed, chain=chain, documents=config.isolate_documents)
        return Dataset(config, windows)
    if isinstance(config.source, str) and config.source.startswith("synthetic:"):
        raise DataError(f"data.source {config.source!r} is not known.", ["synthetic", "synthetic:chain"])
    store = _stored(config, vocab) or _tokenized(config, vocab, progress)
    return Dataset(config, StoredWindows(store, config.seq_len, config.isolate_documents))


def _stored(config: DataConfig, vocab: int) -> TokenStore | None:
    """The store that the source names, if it names one; its own tokenizer counts."""
    path = Path(config.sources[0]).expanduser()
    folder = path.parent if path.name == TOKENS else path
    if path.suffix == ".bin" and path.name != TOKENS:
        raise DataError(f"{path}: of .bin files only our own {TOKENS} with its {HEADER} is read.")
    if path.name != TOKENS and not (folder / HEADER).is_file():
        return None
    if len(config.sources) > 1:
        raise DataError(f"data.source: stored tokens ({path}) do not mix with other sources.")
    store = TokenStore(folder)
    facts = store.header.tokenizer
    if config.tokenizer != "bytes" and open_tokenizer(config.tokenizer, config.end_token).facts != facts:
        raise DataError(f"{folder} was tokenized with {facts.name}, not with data.tokenizer {config.tokenizer}.")
    check_vocabulary(facts, vocab)
    return store


def _tokenized(config: DataConfig, vocab: int, progress: Report | None) -> TokenStore:
    tokenizer = open_tokenizer(config.tokenizer, config.end_token)
    check_vocabulary(tokenizer, vocab)
    return tokenized(find_files(config.sources), tokenizer, config.text_key, config.cache, progress)
