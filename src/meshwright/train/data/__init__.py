"""Text as samples, the same ones under every layout.

`open_dataset` tokenizes a source once into memory-mapped files (`build`, `store`) and numbers its samples; a `Loader`
puts them in an endless order by epochs and splits each global batch exactly over data ranks and micro-batches. Where
the run stands is one number, the samples taken, so it resumes under another layout too.
"""

from meshwright.train.data.build import Progress
from meshwright.train.data.collate import batch_hash
from meshwright.train.data.config import DataConfig
from meshwright.train.data.dataset import Dataset, Sample, open_dataset
from meshwright.train.data.errors import DataError
from meshwright.train.data.loader import Loader
from meshwright.train.data.tokenizer import check_vocabulary, open_tokenizer

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
