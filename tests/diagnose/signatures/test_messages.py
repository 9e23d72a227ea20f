"""Messages that name a fault, as programs print them, and what is made of them."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.finding import POSSIBLE, WARNING
from meshwright.diagnose.signatures.signature import Signature, finding
from meshwright.diagnose.signatures.topic import ALL

PARSER = importlib.import_module("re._parser")

LINES = [
    # torch/csrc/distributed/c10d/socket.cpp
    ("[W socket.cpp:436] [c10d] The server socket has failed to bind to [::]:29500 "
     "(errno: 98 - Address already in use).",
     "port_in_use", "29500"),
    ("OSError: [Errno 98] Address already in use", "port_in_use", "listen"),
    ("torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to "
     "(node-a, 29511).", "rendezvous", "node-a, port 29511"),
    ("torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 3/4 clients joined.",
     "rendezvous", "3 of 4"),
    # torch/distributed/distributed_c10d.py
    ("RuntimeError: Timed out initializing process group in store based barrier on rank: 3, for key: "
     "store_based_barrier_key:1 (world_size=16, worker_count=8, timeout=0:30:00)", "rendezvous", "8 of 16"),
    ("torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError", "rendezvous", "did not meet"),
    ("RuntimeError: CUDA error: invalid device ordinal", "device_mapping", "more processes than visible"),
    ("RuntimeError: DataLoader worker (pid 4711) is killed by signal: Bus error. It is possible that dataloader's "
     "workers are out of shared memory. Please try to raise your shared memory limit.", "shm_too_small", "worker"),
    ("misc/shmutils.cc:87 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-Ab3 (size 9637888)",
     "shm_too_small", "9.19 MiB"),
    # torch/csrc/distributed/c10d/reducer.cpp
    ("Parameter indices which did not receive grad for rank 3: 12 13 14", "ddp_unused_parameters", "12 13 14"),
    ("RuntimeError: Expected to mark a variable ready only once. This error is caused by one of the following reasons",
     "ddp_checkpoint_reentrant", "twice"),
    # torch/distributed/fsdp/_flat_param.py
    ("ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float32", "fsdp_dtype",
     "torch.bfloat16 and torch.float32"),
    ("ValueError: Must flatten tensors with uniform `requires_grad` when `use_orig_params=False`", "fsdp_dtype",
     "frozen"),
    ("size mismatch for lm_head.weight: copying a param with shape torch.Size([32000, 4096]) from checkpoint, the "
     "shape in current model is torch.Size([32064, 4096]).", "checkpoint_reshard", "[32000, 4096]"),
    # NCCL 2.11 include/shm.h
    ("node-a:2143:2561 [1] NCCL WARN Call to posix_fallocate failed : No space left on device", "shm_too_small",
     "/dev/shm"),
    # ROCm's runtime
    ("HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in a hardware exception.", "hardware_fault", "GPU"),
    # Megatron-LM megatron/training/checkpointing.py
    ("AssertionError: padded_vocab_size value from checkpoint (32000) is not equal to the input argument value (32256)",
     "vocab_padding", "padded to 32000"),
    ("AssertionError: number of layers (30) must be divisible by pipeline parallel size (4)", "pipeline_layout",
     "30 layers"),
    ("AssertionError: seq_length (4097) must be divisible by tensor parallel size (8)", "divisibility_sequence",
     "4097 tokens"),
    ("ValueError: num_key_value_heads (4) must be divisible by tensor parallel size (8)", "divisibility_gqa",
     "key/value"),
    # torchtitan/distributed/parallel_dims.py
    ("AssertionError: Invalid parallel dims: dp_replicate(1) * dp_shard(4) * cp(1) * tp(4) * pp(1) != WORLD_SIZE(8)",
     "world_size_layout", "multiply"),
    ("node-b kernel: NVRM: GPU 0000:c1:00.0: GPU has fallen off the bus.", "hardware_fault", "bus"),
    ("NET/IB : Got async event : port error", "network_error", "network card"),
    ("Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
     "fp16_overflow", "overflow"),
    ("[2024-05-01 10:00:00,000] [WARNING] [stage3.py:1947:step] 3 pytorch allocator cache flushes since last step.",
     "alloc_retries", "3 times"),
    ("init.cc:1247 NCCL WARN Mismatched collective detected, please check your collective calls at and around rank 3.",
     "mismatched_collectives", "same collective"),
    ("Uncaught Error: Unhandled version 5 MemoryViz.js:54", "tooling", "protocol 4"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "category", "words"), LINES)
def test_a_message_leads_to_its_cause(line: str, category: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "rank_5.log").write_text(f"2025-01-01 00:00:00 INFO start\n{line}\n")
    first = diagnose([tmp_path]).findings[0]
    assert first.category == category
    assert words in first.cause
    assert first.change
    assert (first.evidence[0].line, first.evidence[0].rank) == (2, 5)


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.pattern[:40])
def test_every_message_says_what_to_do_and_from_where_it_is_known(one: Signature) -> None:
    pattern = re.compile(one.pattern, re.IGNORECASE)
    told = finding(one, [], dict.fromkeys(pattern.groupindex, "7"))
    assert told.cause.endswith(".")
    assert told.change
    assert one.source
    assert one.key == one.key.lower()


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.pattern[:40])
def test_every_wording_of_a_message_has_one_of_its_keys(one: Signature) -> None:
    for wording in wordings(PARSER.parse(one.pattern)):
        assert any(key in wording.lower() for key in one.key.split("|")), wording


def wordings(parsed: Iterable[tuple[Any, Any]]) -> list[str]:
    """Texts that a pattern takes, one for each choice of its alternatives; what may be left out is left out."""
    texts = [""]
    for operation, operand in parsed:
        match str(operation):
            case "LITERAL":
                added = [chr(operand)]
            case "BRANCH":
                added = [text for branch in operand[1] for text in wordings(branch)]
            case "SUBPATTERN":
                added = wordings(operand[3])
            case "MAX_REPEAT" | "MIN_REPEAT":
                added = [text * operand[0] for text in wordings(operand[2])] if operand[0] else [""]
            case "IN":
                added = [chr(value) for kind, value in operand if str(kind) == "LITERAL"] or ["?"]
            case "ASSERT" | "ASSERT_NOT" | "AT":
                added = [""]
            case _:
                added = ["?"]
        texts = [before + text for before in texts for text in added][:2000]
    return texts


def test_a_message_that_only_follows_from_something_comes_after_it(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(
        "[rank0]: torch.distributed.DistBackendError: NCCL error: unhandled system error, NCCL version 2.19.3\n"
        "[rank0]: RuntimeError: Connection closed by peer\n"
        "[rank1]: misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-x to 5967876 bytes\n"
    )
    found = diagnose([tmp_path]).findings
    assert found[0].category == "shm_too_small"
    assert {one.category for one in found[1:] if one.consequence} == {"network_error"}


def test_the_same_message_of_many_ranks_is_one_finding(tmp_path: Path) -> None:
    for rank in range(20):
        (tmp_path / f"rank_{rank}.log").write_text("RuntimeError: CUDA error: invalid device ordinal\n")
    (one,) = diagnose([tmp_path]).findings
    assert one.ranks == tuple(range(20))


def test_an_ordinary_log_is_not_accused(tmp_path: Path) -> None:
    lines = [f"2025-01-01 00:00:{s:02d} INFO step {s} loss {9 - s / 10:.3f} saving checkpoint" for s in range(60)]
    (tmp_path / "job.log").write_text("\n".join(lines))
    assert [one for one in diagnose([tmp_path]).findings if one.severity != "info"] == []


def test_words_of_a_person_make_a_cause_possible_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text(
        "Training hangs when only rank 0 calls save_checkpoint() at the end of the epoch, the others wait forever.\n"
    )
    first = diagnose([tmp_path]).findings[0]
    assert first.category == "rank_conditional_collective"
    assert (first.confidence, first.severity) == (POSSIBLE, WARNING)
