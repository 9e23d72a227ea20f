"""The training loop: what a rank does from joining the job to leaving it.

`run` is the order of it all; `setup` builds what a run needs, `weights` fills the parameters (fresh, a checkpoint,
safetensors), `steps` is the loop, `report` reads the steps' numbers, `evaluate` measures held-out loss, `facts` says
which layout really runs, `exporting` writes the result for others.
"""

from __future__ import annotations

from meshwright.train.loop.run import Outcome, train

__all__ = ["Outcome", "train"]
