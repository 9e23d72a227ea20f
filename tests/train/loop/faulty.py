"""`meshwright` with a fault: FAULT="raise:1:3" has rank 1 raise in its third step, "kill" kills it there."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from meshwright.cli.frame import main
from meshwright.train.loop.steps import Steps

kind, rank, step = os.environ["FAULT"].split(":")
whole = Steps._step


def faulty(self: Steps) -> Any:
    if os.environ["RANK"] == rank and self.done + 1 == int(step):
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise ArithmeticError("an injected fault")
    return whole(self)


Steps._step = faulty  # type: ignore[method-assign]
sys.exit(main(sys.argv[1:]))
