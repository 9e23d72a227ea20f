"""Reading what nccl-tests prints (github.com/NVIDIA/nccl-tests), and rccl-tests, as if `comms` had measured it.

`read_file(path, …)` takes the terminal's output of any generation, with or without what a launcher puts around it, and
the file of `-J`. A file may hold several tests, one after the other. Nothing here imports torch.
"""

from meshwright.diagnose.nccl_tests.read import Outcome, read_file, read_text
from meshwright.diagnose.nccl_tests.report import ReadError

__all__ = ["Outcome", "ReadError", "read_file", "read_text"]
