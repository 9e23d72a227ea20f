"""PublishedRun: one row of a table of published runs, typed. Cells are read when asked for, a table has thousands."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from meshwright.spec.errors import RequestError

COUNTS = frozenset(
    "layers hidden heads kv_heads ffn_hidden vocab seq_len moe_experts moe_topk gpus gpus_per_node "
    "dp tp pp cp ep vpp microbatch global_batch grad_accum".split()
)
"""Columns that hold whole numbers from 1."""
MEASURES = frozenset(
    "params_b step_time_s tokens_per_s_per_gpu samples_per_s tflops_per_gpu mfu hfu peak_mem_gib".split()
)
"""Columns that hold numbers above 0."""
TEXTS = frozenset(
    "id source source_locator model_name gpu intra_link inter_link precision framework zero_stage_or_sharding sp "
    "recompute attention compile oom recompute_known time_ok role notes".split()
)
COLUMNS = COUNTS | MEASURES | TEXTS
REQUIRED = ("id", "layers", "hidden", "heads", "vocab", "seq_len", "gpu", "gpus", "dp", "tp", "pp", "global_batch")
"""Columns without which no row of a table can be priced; single cells may be empty."""
ALWAYS_STATED = ("id", "layers", "hidden", "seq_len", "gpu", "gpus")


@dataclass(frozen=True, slots=True)
class PublishedRun:
    """A measured training run as its source states it; None or "": not stated."""

    line: int
    """The line of the table on which it stands."""
    row: Mapping[str, str]
    """All cells by column."""

    def text(self, column: str) -> str:
        """A cell as it stands; "" where the table lacks the column."""
        return self.row.get(column, "")

    def count(self, column: str) -> int | None:
        """A cell as a whole number from 1. Raises RequestError, naming line and column."""
        cell = self.row.get(column)
        if not cell:
            return None
        value = int(cell) if cell.strip().isdecimal() else 0
        if value < 1:
            raise RequestError(f"Line {self.line}, column {column}: {cell[:40]!r} is not a whole number from 1.")
        return value

    def measure(self, column: str) -> float | None:
        """A cell as a finite number above 0. Raises RequestError, naming line and column."""
        cell = self.row.get(column)
        if not cell:
            return None
        try:
            value = float(cell)
        except ValueError:
            value = 0.0
        if not 0 < value < math.inf:
            raise RequestError(f"Line {self.line}, column {column}: {cell[:40]!r} is not a number above 0.")
        return value

    def check(self) -> None:
        """Read every cell. Raises RequestError for the first that is empty or no number where one must be."""
        for column in ALWAYS_STATED:
            if not self.row[column]:
                raise RequestError(f"Line {self.line}, column {column}: empty, but no run can be read without it.")
        for column in self.row:
            if column in COUNTS:
                self.count(column)
            elif column in MEASURES:
                self.measure(column)

    @property
    def id(self) -> str:
        """The row's name."""
        return self.row["id"]

    @property
    def source(self) -> str:
        """Short name of the repository or paper."""
        return self.text("source")

    @property
    def source_locator(self) -> str:
        """Where to look it up: repository@commit:file, or paper and table."""
        return self.text("source_locator")

    @property
    def model_name(self) -> str:
        """The model, as the source calls it."""
        return self.text("model_name")

    @property
    def device(self) -> str:
        """The device, as the source spells it."""
        return self.row["gpu"]

    @property
    def devices(self) -> int:
        """Number of devices."""
        return self.count("gpus") or 1

    @property
    def parameters(self) -> float:
        """As stated, else 12·layers·hidden² + vocab·hidden: enough to call two models alike."""
        stated = self.measure("params_b")
        if stated is not None:
            return stated * 1e9
        layers, hidden = self.count("layers") or 1, self.count("hidden") or 1
        return float(12 * layers * hidden**2 + (self.count("vocab") or 0) * hidden)

    @property
    def step_seconds(self) -> float | None:
        """Seconds of one step: as stated, else from tokens/s per device, else from samples/s, else None."""
        stated, batch = self.measure("step_time_s"), self.count("global_batch")
        if stated is not None or batch is None:
            return stated
        tokens_per_second, seq_len = self.measure("tokens_per_s_per_gpu"), self.count("seq_len")
        if tokens_per_second is not None and seq_len is not None:
            return batch * seq_len / (tokens_per_second * self.devices)
        samples_per_second = self.measure("samples_per_s")
        return None if samples_per_second is None else batch / samples_per_second

    @property
    def tokens_per_second_per_device(self) -> float | None:
        """Measured throughput, where step time and batch are known."""
        seconds, batch, seq_len = self.step_seconds, self.count("global_batch"), self.count("seq_len")
        if seconds is None or batch is None or seq_len is None:
            return self.measure("tokens_per_s_per_gpu")
        return batch * seq_len / seconds / self.devices

    @property
    def time_ok(self) -> bool:
        """The timing can be relied on."""
        return self.row.get("time_ok") != "n"

    @property
    def out_of_memory(self) -> bool:
        """The run ended for want of memory, for certain."""
        return self.row.get("oom") == "y"

    @property
    def recompute(self) -> str:
        """none, selective or full; "" where it is not known."""
        return self.text("recompute").partition(" ")[0]

    @property
    def zero_stage(self) -> int | None:
        """What the sharding text means: 0 to 3, or None where it says nothing."""
        return zero_stage_of(self.text("zero_stage_or_sharding"))

    @property
    def layout(self) -> str:
        """The split in words, as far as it is stated: `dp8 tp4 pp2 mbs1 ZeRO-1 full`."""
        degrees = (
            f"{name}{self.text(name)}" for name in ("dp", "tp", "pp", "cp", "ep") if self.text(name) not in ("", "1")
        )
        micro_batch = f"mbs{self.text('microbatch')}" if self.text("microbatch") else ""
        stage = f"ZeRO-{self.zero_stage}" if self.zero_stage else ""
        recompute = f"ac:{self.recompute}" if self.recompute not in ("", "none") else ""
        return " ".join(part for part in (*degrees, stage, micro_batch, recompute) if part)


def zero_stage_of(sharding: str) -> int | None:
    """The ZeRO stage that a source's words describe: 0 to 3, or None where they say nothing."""
    text = sharding.lower()
    for stage in "0123":
        if f"zero-{stage}" in text:
            return int(stage)
    if "fsdp" in text.replace("fsdp=0", ""):
        return 3
    if "distributed optimizer" in text:
        return 1
    return 0 if text.startswith(("ddp", "none")) else None
