"""What healthy jobs leave behind is no reason to say that something is wrong.

`healthy_jobs/` holds what programs print when nothing is wrong, warnings and noise included: torchtitan, Megatron-LM,
DeepSpeed, Hugging Face's Trainer, accelerate, Lightning, torchrun, NCCL, Slurm, pip, wandb, nvidia-smi, the kernel.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.finding import INFO, Finding

JOBS = Path(__file__).parent / "healthy_jobs"


def alarming(*paths: Path) -> list[Finding]:
    return [one for one in diagnose(paths).findings if one.severity != INFO]


@pytest.mark.parametrize("name", sorted(path.name for path in JOBS.iterdir()))
def test_a_healthy_artefact_alone_has_nothing_wrong(name: str) -> None:
    assert alarming(JOBS / name) == []


def test_all_of_them_together_have_nothing_wrong() -> None:
    others = {"nccl_nvlink.log", "nccl_single_verbose.log", "efa.log", "roce.log", "rocm.log"}  # other jobs
    one_job = [path for path in JOBS.iterdir() if path.name not in others]
    assert alarming(*one_job) == []


@pytest.mark.parametrize(
    "line",
    [
        "ECC errors, uncorrectable, volatile: 3",
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "        Double Bit ECC                    : 2",
    ],
)
def test_counters_that_are_not_zero_are_faults(tmp_path: Path, line: str) -> None:
    (tmp_path / "node.log").write_text(f"INFO start\n{line}\n")
    assert diagnose([tmp_path]).findings[0].category == "hardware_fault"


@pytest.mark.parametrize(
    "line",
    [
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL double-bit ECC errors: 0",
        "Number of uncorrectable ECC errors: 0",
        "NVLink CRC FLIT Error Counter: 0",
        "NVLink errors: none",
    ],
)
def test_counters_that_are_zero_are_no_faults(tmp_path: Path, line: str) -> None:
    (tmp_path / "node.log").write_text(f"INFO start\n{line}\n")
    assert alarming(tmp_path) == []


def test_what_a_program_may_say_was_not_said(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "# trains\nimport torch\n\ntry:\n    step()\nexcept torch.OutOfMemoryError:\n"
        "    raise SystemExit('CUDA out of memory')\n"
        "assert heads % tp == 0, 'attention heads must be divisible by tensor parallel size'\n"
    )
    (tmp_path / "run.sh").write_text("#!/bin/bash\n# torchrun --master-port 29500: address already in use\necho go\n")
    (tmp_path / "out.log").write_text("INFO start\n")
    assert alarming(tmp_path) == []


def test_a_text_that_quotes_an_import_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "out.log").write_text(
        "INFO start\nimport torch\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    )
    assert [one.category for one in diagnose([tmp_path]).findings] == ["oom_capacity"]


def test_a_store_that_nobody_reaches_is_told(tmp_path: Path) -> None:
    (tmp_path / "out.log").write_text(
        "torch.distributed.DistNetworkError: The client socket has failed to connect to any network address of "
        "(node-0, 29500). The client socket has failed to connect to node-0:29500 (errno: 110 - Timed out).\n"
    )
    assert diagnose([tmp_path]).findings[0].category == "rendezvous"
    assert diagnose([tmp_path]).findings[0].severity == "error"
