"""What goes wrong before the first step: ports, rendezvous, devices, shared memory."""

from __future__ import annotations

from meshwright.diagnose.signatures.signature import Signature

LAUNCH = (
    Signature(
        "device_mapping", "duplicate gpu detected",
        r"Duplicate GPU detected ?: rank (?P<a>\d+) and rank (?P<b>\d+) both on CUDA device (?P<device>\w+)",
        "Ranks {a} and {b} use the same GPU ({device}): more processes than GPUs, or the local rank is not used.",
        (
            "Call torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before anything else uses CUDA.",
            "Start as many processes on a node as it has visible GPUs (--nproc-per-node).",
        ),
        "NCCL src/init.cc", weight=2,
        confirm="Print LOCAL_RANK and torch.cuda.current_device() on every rank.",
    ),
)  # fmt: skip
