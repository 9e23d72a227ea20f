"""Failed allocations in logs: real public lines of each PyTorch generation, and verdicts by hand calculation."""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path
from typing import Any

import pytest

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.finding import CERTAIN, INFO, LIKELY, POSSIBLE, Finding
from meshwright.diagnose.memory.oom import parse_oom
from meshwright.spec.errors import RequestError

GIB, MIB = 2**30, 2**20


def said(folder: Path, text: str, **files: Any) -> tuple[Finding, ...]:
    (folder / "run.log").write_text(text)
    for name, parsed in files.items():
        (folder / f"{name}.json").write_text(json.dumps(parsed))
    return diagnose([folder]).findings


def first(found: tuple[Finding, ...]) -> tuple[str, str]:
    assert found
    return found[0].category, found[0].confidence


# pytorch#35901 (torch 1.4)
OLD = (
    "CUDA out of memory. Tried to allocate 10.84 GiB (GPU 0; 23.65 GiB total capacity; 1.06 GiB already allocated; "
    "10.26 GiB free; 12.53 GiB reserved in total by PyTorch)"
)
# pytorch#18853 (torch 1.0)
OLDEST = (
    "RuntimeError: CUDA out of memory. Tried to allocate 1024.00 MiB (GPU 0; 15.90 GiB total capacity; 14.25 GiB "
    "already allocated; 991.56 MiB free; 607.00 KiB cached)"
)
# torchtune#2071
NEW = (
    "[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 5 has a total capacity of "
    "23.43 GiB of which 210.06 MiB is free. Including non-PyTorch memory, this process has 0 bytes memory in use. Of "
    "the allocated memory 22.41 GiB is allocated by PyTorch, and 206.09 MiB is reserved by PyTorch but unallocated."
)
# ROCm/TheRock#2118
LIMITED = (
    "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 255.98 GiB "
    "of which 244.65 GiB is free. 1.05 GiB allowed; Of the allocated memory 1017.01 MiB is allocated by PyTorch, with "
    "17.00 MiB allocated in private pools (e.g., HIP Graphs), and 54.99 MiB is reserved by PyTorch but unallocated."
)
# transformers#23386
AT_SAVE = (
    "UserWarning: Failed to clone() tensor with name lm_head.weight. This may mean that this state_dict entry could "
    "point to invalid memory regions Error: CUDA out of memory. Tried to allocate 502.00 MiB (GPU 1; 39.59 GiB total "
    "capacity; 35.54 GiB already allocated; 276.19 MiB free; 37.22 GiB reserved in total by PyTorch)"
)
# ComfyUI-ChatTTS#9 (cudaMallocAsync)
ASYNC = """\
torch.cuda.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)
Currently allocated     : 6.89 GiB
Requested               : 320.00 MiB
Device limit            : 23.69 GiB
Free (according to CUDA): 2.94 MiB
PyTorch limit (set by user-supplied memory fraction)
                        : 17179869184.00 GiB
"""


def test_numbers_of_every_generation_are_read() -> None:
    old, oldest, new = parse_oom(OLD), parse_oom(OLDEST), parse_oom(NEW)
    assert old.request == pytest.approx(10.84 * GIB)
    assert old.unallocated == pytest.approx((12.53 - 1.06) * GIB)
    assert oldest.free == pytest.approx(991.56 * MIB)
    assert oldest.unallocated == pytest.approx(607 * 1024)
    assert (new.device, new.process) == (5, None)  # "0 bytes" is what a driver says that does not know
    assert new.capacity == pytest.approx(23.43 * GIB)
    assert new.unallocated == pytest.approx(206.09 * MIB)
    assert parse_oom(LIMITED).allowed == pytest.approx(1.05 * GIB)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (OLD, ("fragmentation", POSSIBLE)),  # 11.47 GiB reserved in vain, 10.84 asked
        (OLDEST, ("oom_capacity", LIKELY)),
        (NEW, ("oom_capacity", LIKELY)),
        (LIMITED, ("oom_capacity", LIKELY)),
        (AT_SAVE, ("oom_checkpoint", LIKELY)),
        ("RuntimeError: CUDA error: out of memory", ("oom_capacity", POSSIBLE)),
    ],
)
def test_public_lines_get_the_verdict_that_their_threads_reached(
    tmp_path: Path, text: str, verdict: tuple[str, str]
) -> None:
    assert first(said(tmp_path, text + "\n")) == verdict


def test_a_full_device_is_told_that_allocator_settings_do_not_help(tmp_path: Path) -> None:
    assert any("allocator settings" in one for one in said(tmp_path, NEW)[0].change)


def test_a_failure_of_the_async_allocator_is_read_over_its_lines(tmp_path: Path) -> None:
    found = said(tmp_path, ASYNC)
    assert len(found) == 1
    assert "320 MiB" in found[0].cause
    # 23.69 GiB less 6.89 and the free 2.94 MiB: who holds the rest, if not other processes?
    assert "Other processes" in found[0].cause or "6.89 GiB" in found[0].cause


def test_a_text_that_was_pasted_over_several_lines_is_one_failure(tmp_path: Path) -> None:
    # nanoGPT#236
    text = (
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB \n"
        "GPU 0; 8.00 GiB total capacity; 7.20 GiB already allocated; 0 bytes free; 7.30 GiB reserved in total\n"
    )
    found = said(tmp_path, text)
    assert [(one.category, one.confidence) for one in found] == [("oom_capacity", LIKELY)]
    assert "7.20 GiB" in found[0].cause
    resumed = said(tmp_path, "When resuming training from a checkpoint:\n" + text)
    assert [one.category for one in resumed] == ["oom_capacity", "oom_rank0_skew"]


def test_memory_of_other_processes_is_told_apart_from_ones_own(tmp_path: Path) -> None:
    # monodepth2#236: 7.93 GiB, of which PyTorch reserved 3.06 and 25 MiB are free; the rest is of other processes.
    text = (
        "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.93 GiB total capacity; 2.81 GiB already allocated; "
        "25.38 MiB free; 3.06 GiB reserved in total by PyTorch)"
    )
    found = said(tmp_path, text)[0]
    assert (found.category, found.confidence) == ("oom_capacity", LIKELY)
    assert "Other processes hold 3.35 GiB" in found.cause  # 7.93 - 3.06 - 0.02 - 1.5 for the own context


def oom(request: str, allocated: float, unallocated: float, capacity: float = 79.15, rank: int = 0) -> str:
    used = allocated + unallocated + 0.6
    return (
        f"[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {request}. GPU {rank} has a "
        f"total capacity of {capacity} GiB of which {capacity - used:.2f} GiB is free. Including non-PyTorch memory, "
        f"this process has {used:.2f} GiB memory in use. Of the allocated memory {allocated:.2f} GiB is allocated by "
        f"PyTorch, and {unallocated:.2f} GiB is reserved by PyTorch but unallocated.\n"
    )


def test_between_the_thresholds_nothing_is_more_than_possible(tmp_path: Path) -> None:
    # trl#3436: 2.57 GiB in vain look like fragmentation, and the model was simply too large.
    found = said(tmp_path, oom("388.00 MiB", 6.61, 2.57, 9.68))
    assert {one.confidence for one in found} == {POSSIBLE}
    assert {one.category for one in found} == {"fragmentation", "oom_capacity"}


def test_a_device_that_the_jobs_tensors_do_not_fill_is_only_possibly_too_small(tmp_path: Path) -> None:
    # 62 % of the device in tensors: 2 GiB are held by nobody that the text tells of.
    text = (
        "RuntimeError: CUDA out of memory. Tried to allocate 40.00 MiB (GPU 0; 5.80 GiB total capacity; {} GiB already "
        "allocated; 16.81 MiB free; 80.22 MiB cached)\n"
    )
    assert first(said(tmp_path, text.format("3.63"))) == ("oom_capacity", POSSIBLE)
    assert first(said(tmp_path, text.format("5.20"))) == ("oom_capacity", LIKELY)


def test_what_would_not_fit_without_any_fragmentation_is_capacity(tmp_path: Path) -> None:
    # 70 GiB in tensors and 10 asked for are more than 79.15, whatever of the 5 GiB in vain could be used.
    assert first(said(tmp_path, oom("10.00 GiB", 70.0, 5.0))) == ("oom_capacity", LIKELY)
    assert first(said(tmp_path, oom("6.00 GiB", 70.0, 5.0))) == ("oom_capacity", POSSIBLE)


def test_processes_that_the_text_lists_are_summed(tmp_path: Path) -> None:
    text = oom("86.00 MiB", 28.0, 0.2).replace(
        "Including", "Process 1500 has 30.00 GiB memory in use. Process 1501 has 20.00 GiB memory in use. Including"
    )
    assert "Other processes hold 50.00 GiB" in said(tmp_path, text)[0].cause


def test_a_failure_while_the_driver_has_enough_is_no_fragmentation(tmp_path: Path) -> None:
    # pytorch#175431: 2 MiB failed with 203 GiB free and 14.93 GiB reserved in vain.
    found = said(tmp_path, oom("2.00 MiB", 68.63, 14.93, 287.98))
    assert [(one.category, one.confidence) for one in found] == [("oom_capacity", POSSIBLE)]


def frames(*lines: str, rank: int = 0) -> str:
    return "".join(f'[rank{rank}]:   File "train.py", line 3, in step\n[rank{rank}]:     {one}\n' for one in lines)


CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
    "max_position_embeddings": 8192,
}  # fmt: skip
LAUNCH = (
    "torchrun --nproc_per_node 8 train.py --fsdp full_shard --per_device_train_batch_size 2 --max_seq_length 4096\n"
)


def test_a_request_that_is_batch_times_sequence_times_vocabulary_is_the_logits(tmp_path: Path) -> None:
    # 2 x 4096 x 128256 x 4 bytes = 3.914 GiB
    text = LAUNCH + frames("loss = loss_fct(logits, labels)") + oom("3.91 GiB", 74.5, 1.0)
    assert first(said(tmp_path, text, config=CONFIG)) == ("oom_logits", CERTAIN)
    assert "batch 2 x sequence 4,096 x vocabulary 128,256 x 4 bytes" in diagnose([tmp_path]).findings[0].cause


def test_a_request_of_another_size_in_another_place_is_not_the_logits(tmp_path: Path) -> None:
    text = LAUNCH + frames("x = self.mlp(x)") + oom("3.50 GiB", 75.5, 1.0)
    found = said(tmp_path, text, config=CONFIG)
    assert first(found) == ("oom_capacity", LIKELY)
    assert not any(one.category == "oom_logits" for one in found)


def test_a_large_request_in_the_loss_is_likely_the_logits_without_a_configuration(tmp_path: Path) -> None:
    text = frames("loss = torch.nn.functional.cross_entropy(logits, labels)") + oom("9.40 GiB", 69.0, 0.3)
    assert first(said(tmp_path, text)) == ("oom_logits", LIKELY)


def test_what_the_planner_would_save_is_told_when_model_and_layout_are_known(tmp_path: Path) -> None:
    text = LAUNCH + frames("x = self.mlp(x)") + oom("3.50 GiB", 75.5, 1.0)
    change = said(tmp_path, text, config=CONFIG)[0].change
    assert change[0].startswith("Halve the micro-batch to 1: the estimate's peak falls from ")
    assert any(one.startswith("Recompute all activations: the estimate's peak") for one in change)


def test_a_state_that_does_not_fit_is_capacity_whatever_the_reserve_says(tmp_path: Path) -> None:
    # Llama 3 8B under Adam: 8.03e9 x 16 / 4 bytes = 29.9 GiB on each of 4 devices of 32 GiB.
    launch = LAUNCH.replace("nproc_per_node 8", "nproc_per_node 4")
    found = said(tmp_path, launch + oom("200.00 MiB", 20.0, 11.0, 31.74), config=CONFIG)
    assert first(found) == ("oom_capacity", LIKELY)
    assert "29.92 GiB on each device" in found[0].cause


@pytest.mark.parametrize(
    ("line", "words", "category"),
    [
        ("loss.backward()", "in the backward pass", "oom_capacity"),
        ("optimizer.step()", "in the optimizer's step", "oom_capacity"),
        ("state = torch.load(path)", "loaded", "oom_checkpoint"),
        ("state = model.state_dict()", "saved", "oom_checkpoint"),
        ("trainer.train(resume_from_checkpoint=True)\n[rank0]:     y = self.mlp(x)", "failed", "oom_capacity"),
        ("hook(state_dict, prefix) in _pre_load_state_dict_hook", "loaded", "oom_checkpoint"),
        ("model = model.cuda()", "put on the device", "oom_capacity"),
    ],
)
def test_the_frames_tell_what_the_program_did(tmp_path: Path, line: str, words: str, category: str) -> None:
    found = said(tmp_path, frames(line) + oom("2.30 GiB", 77.0, 0.2))[0]
    assert found.category == category
    assert words in found.cause


def test_frames_of_another_rank_are_not_taken_for_ones_own(tmp_path: Path) -> None:
    text = frames("state = model.state_dict()", rank=1) + frames("loss.backward()") + oom("2.30 GiB", 77.0, 0.2)
    assert said(tmp_path, text)[0].category == "oom_capacity"


def test_the_same_failure_on_all_ranks_is_one_finding_with_all_ranks(tmp_path: Path) -> None:
    text = "".join(oom("2.30 GiB", 77.0 + rank / 10, 0.2, rank=rank) for rank in range(4))
    found = said(tmp_path, text)
    assert len([one for one in found if one.category == "oom_capacity"]) == 1
    assert found[0].ranks == (0, 1, 2, 3)


def test_a_load_that_fails_on_the_first_device_alone_is_a_skew(tmp_path: Path) -> None:
    steps = "".join(f"[rank{rank}]: INFO resuming from checkpoint\n" for rank in range(4))
    text = steps + frames('state = torch.load("checkpoint.pt")') + oom("2.30 GiB", 77.0, 0.2)
    assert first(said(tmp_path, text)) == ("oom_rank0_skew", LIKELY)


def test_a_recovered_retry_is_not_an_out_of_memory_error(tmp_path: Path) -> None:
    # pytorch#193195
    line = (
        "[rank1]:[W812 16:00:28.643448608 CUDACachingAllocator.cpp:3933] memory allocation failed with OOM on device 1 "
        "while trying to allocate 20971520 bytes (free: 15794176, total: 150111977472).\n"
    )
    found = said(tmp_path, line)
    assert [one.category for one in found] == ["alloc_retries"]
    assert found[0].ranks == (1,)
    assert "alloc_retries" not in {one.category for one in said(tmp_path, line + oom("2.30 GiB", 77.0, 0.2))}


def test_retries_that_rise_are_told_and_a_count_that_stands_still_is_not_above_info(tmp_path: Path) -> None:
    # torchtitan#1558
    line = "[rank0]:[titan] 2025-08-21 21:45:{:02d},254 - root - WARNING - {} CUDA memory allocation retries.\n"
    rising = "".join(line.format(second, 5 + 2 * second) for second in range(4))
    assert first(said(tmp_path, rising)) == ("alloc_retries", LIKELY)
    assert "from 5 to 11" in diagnose([tmp_path]).findings[0].cause
    still = "".join(line.format(second, 9) for second in range(4))
    assert {one.severity for one in said(tmp_path, still)} <= {INFO}
    in_turn = "".join(line.replace("[rank0]:", "").format(second, (2, 9)[second % 2]) for second in range(16))
    assert {one.severity for one in said(tmp_path, in_turn)} <= {INFO}  # two ranks, each of which stands still


@pytest.mark.parametrize(
    "line",
    [
        "CUDA out of memory. Tried to allocate 9999999999999999999.00 EiB. GPU 9999999 has a total capacity of nan GiB",
        "CUDA out of memory. Tried to allocate -5 GiB (GPU -1; 0 bytes total capacity; 0 bytes already allocated; -1",
        "Tried to allocate 0 bytes. GPU 0 has a total capacity of 0 bytes of which 0 bytes is free. 0 bytes reserved",
        "CUDA out of memory. " * 200,
        "{'total_size': 1, 'blocks': " + "[" * 900,
        "{'total_size': 10**9, 'blocks': [{'size': None}]}",
    ],
)
def test_hostile_lines_do_not_crash(tmp_path: Path, line: str) -> None:
    said(tmp_path, f"2024-01-01 00:00:00 ERROR\n{line}\n", config=CONFIG | {"hidden_size": -1})


def test_damaged_lines_do_not_crash(tmp_path: Path) -> None:
    draw = random.Random(3)
    sound = "\n".join((OLD, OLDEST, NEW, LIMITED, AT_SAVE, ASYNC, LAUNCH, oom("3.91 GiB", 74.5, 1.0))).encode()
    for _ in range(100):
        data = bytearray(sound)
        for _ in range(40):
            at = draw.randrange(len(data))
            data[at : at + draw.randrange(6)] = draw.choice(
                (b"9" * 30, b"-1", b"nan", b"\xff", b"\n", b" ", b"GiB", b"1e9")
            )
        (tmp_path / "run.log").write_bytes(data)
        with contextlib.suppress(RequestError):
            diagnose([tmp_path])


def test_a_healthy_log_has_no_finding(tmp_path: Path) -> None:
    text = LAUNCH + "".join(
        f"[rank0]:[titan] 2025-08-21 21:45:16,254 - root - INFO - step: {step:2} loss: 10.7 memory: 52.32GiB(66.44%)\n"
        for step in range(1, 50)
    )
    assert said(tmp_path, text, config=CONFIG) == ()
