"""Out-of-memory texts of PyTorch's allocators, in every generation, read into numbers.

Wordings: c10/cuda/CUDACachingAllocator.cpp in 1.x (`(GPU 1; 39.59 GiB total capacity; ..`), in >= 2.1 (`GPU 1 has a
total capacity of .. of which .. is free`), and CUDAMallocAsyncAllocator.cpp (a list of `name : size`). HIP, XPU and NPU
builds print the same with another first word; MPS has its own (aten/src/ATen/mps/MPSAllocator.mm).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from meshwright.diagnose.logs.late import Late
from meshwright.diagnose.memory.sizes import SIZE, in_bytes, rounding


@dataclass(frozen=True, slots=True)
class Oom:
    """The numbers of one failed allocation, in bytes; None: the text does not say."""

    request: float | None = None
    request_rounding: float = 0.0
    """Bytes by which the printed request may be wrong."""
    capacity: float | None = None
    free: float | None = None
    """What the driver still had."""
    process: float | None = None
    """All that this process held, PyTorch's or not."""
    allocated: float | None = None
    unallocated: float | None = None
    """Reserved by PyTorch's allocator and in no tensor."""
    others: float | None = None
    """Held on this device by other processes."""
    allowed: float | None = None
    """A limit that the program set for itself (set_per_process_memory_fraction)."""
    device: int | None = None


IS_OOM = Late(
    r"\b(?:CUDA|HIP|XPU|NPU|MUSA|MPS backend|MLU) out of memory|Tried to allocate [\d.]+ ?[KMGTPE]?i?B|"
    r"Tried to allocate more than 1EB|"
    r"Allocation on device(?: \d+)?(?: would exceed allowed memory)?\.? ?(?:\(out of memory\))?$|"
    r"would exceed allowed memory|CUDA error: out of memory|CUDA driver error: out of memory|"
    r"cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY|hipErrorOutOfMemory|CUBLAS_STATUS_ALLOC_FAILED|"
    r"Cuda failure (?:\d+ )?'out of memory'|torch\.(?:cuda\.)?OutOfMemoryError"
)
"""A device's allocation that failed for good. (`memory allocation failed with OOM` is none: see `retries`.)"""
_NUMBERS = {
    "request": Late(rf"(?:[Tt]ried|trying) to allocate {SIZE}|Requested\s*: {SIZE}"),
    "capacity": Late(rf"total capac?i?ty of {SIZE}|{SIZE} total capacity|Device limit\s*: {SIZE}|"
                           rf"max allowed: {SIZE}"),
    "free": Late(rf"of which {SIZE} is free|; {SIZE} free|Free \(according to CUDA\)\s*: {SIZE}"),
    "process": Late(rf"this process has {SIZE} memory in use"),
    "allocated": Late(
        rf"memory {SIZE} is allocated by PyTorch|{SIZE} already allocated|Currently allocated\s*: {SIZE}"
        rf"|MPS allocated: {SIZE}"
    ),
    "unallocated": Late(rf"{SIZE} is reserved by PyTorch but unallocated|; {SIZE} cached\)"),
    "others": Late(rf"other allocations: {SIZE}"),
    "allowed": Late(rf"\. {SIZE} allowed; "),
}  # fmt: skip
_RESERVED = Late(rf"{SIZE} reserved in total")
_DEVICE = Late(r"\bGPU (\d{1,4})\b|\bNPU (\d{1,4})\b|on device (\d{1,4})\b|\bXPU (\d{1,4})\b")
_PROCESS = Late(rf"Process \d+ has {SIZE} memory in use")
OWN_CONTEXT = 1.5 * 2**30
"""Bytes of a process that PyTorch's allocator does not know of: context, NCCL, cuBLAS. 0.3 to 1.2 GiB is usual."""


def numbers(text: str) -> dict[str, float]:
    """What a line of an out-of-memory text says, by the names of `Oom`."""
    found: dict[str, float] = {}
    for name, pattern in _NUMBERS.items():
        if match := pattern.search(text):
            number, unit = (one for one in match.groups() if one is not None)
            found[name] = in_bytes(number, unit)
            if name == "request":
                found["request_rounding"] = rounding(number, unit)
    if (match := _RESERVED.search(text)) and "allocated" in found:
        found["unallocated"] = max(0.0, in_bytes(*match.groups()) - found["allocated"])
    return found


def parse_oom(text: str) -> Oom:
    """The numbers of a text that `IS_OOM` finds; sizes that cannot be are left out."""
    device = _DEVICE.search(text)
    one = Oom(**numbers(text), device=next(int(d) for d in device.groups() if d) if device else None)
    if one.process is not None and one.process < (one.allocated or 0.0):
        one = replace(one, process=None)  # "0 bytes" where the driver does not tell it (containers)
    return replace(one, others=_others(one, text))


def add_numbers(one: Oom, text: str) -> Oom:
    """The same failure with what a following line adds (CUDAMallocAsyncAllocator prints a line for each number)."""
    new = {name: size for name, size in numbers(text).items() if getattr(one, name, None) in (None, 0.0)}
    return replace(one, **new)  # type: ignore[arg-type]


def _others(one: Oom, text: str) -> float | None:
    """Bytes that other processes hold: what the text lists, else what is missing from the capacity."""
    if one.others is not None:
        return one.others
    listed = [in_bytes(*found) for found in _PROCESS.findall(text)]
    if listed and one.process is not None:
        return sum(listed)
    if one.capacity is None or one.free is None or one.allocated is None or one.allowed is not None:
        return None
    own = one.process if one.process is not None else one.allocated + (one.unallocated or 0.0) + OWN_CONTEXT
    return max(0.0, one.capacity - one.free - own)
