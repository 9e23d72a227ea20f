"""The training loop: what a rank does from joining the job to leaving it.

`setup` builds what a run needs, `weights` fills the parameters (fresh, a checkpoint, safetensors), `run` is the loop,
`facts` says which layout really runs, `evaluate` measures held-out loss.
"""

from __future__ import annotations

from meshwright.train.loop.run import train

__all__ = ["train"]
