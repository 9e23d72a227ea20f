"""What is legal: every divisibility and combination rule of PyTorch, Megatron-LM and DeepSpeed, one file a kind.

`check_layout` checks one layout and returns what a person should know of it; `legal_mask` is the same over columns;
`violations` lists everything that is wrong; `check_shape` needs the layout alone.
"""

from meshwright.spec.rules.check import Violation, check_layout, legal_mask, violations
from meshwright.spec.rules.rule import RUNTIMES
from meshwright.spec.rules.shape import check_shape

__all__ = ["RUNTIMES", "Violation", "check_layout", "check_shape", "legal_mask", "violations"]
