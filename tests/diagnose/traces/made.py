"""Traces made by hand, as Kineto writes them: milliseconds in, microseconds in the file."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MS = 1e3


@dataclass
class Made:
    """The trace of one rank. `clock` is what its host's clock is off by, in milliseconds."""

    rank: int | None = 0
    world: int = 2
    clock: float = 0.0
    events: list[dict[str, Any]] = field(default_factory=list)
    _number: int = 0

    def span(self, kind: str, name: str, start: float, length: float, thread: int = 1, **arguments: Any) -> None:
        self.events.append(
            {
                "ph": "X", "cat": kind, "name": name, "pid": 7, "tid": thread, "ts": (start + self.clock) * MS,
                "dur": length * MS, "args": arguments,
            }
        )  # fmt: skip

    def step(self, number: int, start: float, length: float) -> None:
        self.span("user_annotation", f"ProfilerStep#{number}", start, length)

    def kernel(self, name: str, start: float, length: float, *, launched: float | None = None, **about: Any) -> None:
        """A kernel and its launch, which takes 5 us; the device starts it 5 us later, or when it is told to."""
        self._number += 1
        called = start - 0.01 if launched is None else launched
        self.span("cuda_runtime", "cudaLaunchKernel", called, 0.005, correlation=self._number)
        self.span("kernel", name, start, length, 20 if "nccl" in name else 7, correlation=self._number, **about)

    def collective(
        self, kind: str, start: float, length: float, size: float, *, group: str = "0", description: str = "default_pg",
        members: int = 2, launched: float | None = None, received: float | None = None,
    ) -> None:  # fmt: skip
        """NCCL's kernel with what Kineto notes beside it; `size` and `received` are bytes, sent as floats."""
        self.kernel(
            f"ncclDevKernel_{kind}(ncclDevKernelArgsStorage<4096ul>)", start, length, launched=launched,
            **{
                "Collective name": kind, "In msg nelems": int(size / 4),
                "Out msg nelems": int((size if received is None else received) / 4), "dtype": "Float",
                "Group size": members, "Process Group Name": group, "Process Group Description": description,
                "Process Group Ranks": f"[{group}]",
            },
        )  # fmt: skip

    def text(self) -> str:
        about = {} if self.rank is None else {"distributedInfo": {"backend": "nccl", "rank": self.rank,
                                                                  "world_size": self.world}}  # fmt: skip
        return json.dumps(
            {"schemaVersion": 1, "deviceProperties": [{"id": 0}] * 8, **about, "traceEvents": self.events}
        )

    def save(self, folder: Path) -> None:
        name = f"host_{len(list(folder.iterdir()))}.json"
        (folder / name).write_text(self.text())
