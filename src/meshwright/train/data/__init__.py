"""Text as samples, the same ones under every layout.

`open_dataset` tokenizes a source once into memory-mapped files (`build`, `store`) and numbers its samples; a `Loader`
puts them in an endless order by epochs and splits each global batch exactly over data ranks and micro-batches. Where
the run stands is one number, the samples taken, so it resumes under another layout too.

Loaded when first asked for: reading a DataConfig needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meshwright.train.data.build import Progress
    from meshwright.train.data.collate import batch_hash
    from meshwright.train.data.config import DataConfig
    from meshwright.train.data.dataset import Dataset, Sample, open_dataset
    from meshwright.train.data.errors import DataError
    from meshwright.train.data.loader import Loader
    from meshwright.train.data.tokenizer import check_vocabulary, open_tokenizer

_MODULE_OF = {
    "Progress": "build",
    "batch_hash": "collate",
    "DataConfig": "config",
    "Dataset": "dataset",
    "Sample": "dataset",
    "open_dataset": "dataset",
    "DataError": "errors",
    "Loader": "loader",
    "check_vocabulary": "tokenizer",
    "open_tokenizer": "tokenizer",
}

__all__ = [
    "DataConfig",
    "DataError",
    "Dataset",
    "Loader",
    "Progress",
    "Sample",
    "batch_hash",
    "check_vocabulary",
    "open_dataset",
    "open_tokenizer",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
