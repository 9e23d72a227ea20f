"""What goes wrong in a step: devices, numbers, memory, hangs."""

from __future__ import annotations

from meshwright.diagnose.finding import CERTAIN, INFO, POSSIBLE, WARNING
from meshwright.diagnose.signatures.signature import Signature

_DRAIN = (
    ("Take the node out of the pool and run its vendor's test (dcgmi diag -r 3, nvidia-smi -q -d ECC)."),
    "Resume from the last checkpoint on other nodes. No setting of NCCL helps.",
)
_SCALE = (
    "Train in bf16 where the device has it.",
    (
        "In fp16: go back to the last good checkpoint, lower the learning rate, and look for the "
        "operation that overflows."
    ),
)
_NONE = r"(?! ?errors?\b)(?!\W{0,40}(?:0\b|N/A|None|no\b|not\b))"
"""After the name of a counter: what it counts is there. nvidia-smi -q and DCGM name every counter, mostly with 0."""


RUNNING = (
    Signature(
        "hardware_fault",
        "ecc",
        (
            rf"uncorrectable ECC errors?\b{_NONE}|double.?bit ECC(?: errors?)?\b{_NONE}|"
            rf"ECC error.{{0,80}}uncorrect\w*\b{_NONE}"
        ),
        "A GPU has a memory error that it cannot correct.",
        _DRAIN,
        "CUDA runtime, cudaErrorECCUncorrectable",
        confidence=CERTAIN,
        weight=4,
        confirm="nvidia-smi -q -d ECC and dmesg of that node.",
    ),
    Signature(
        "hardware_fault",
        "cuda error|hsa_status_error|hardware exception",
        (
            r"CUDA error: (?:hardware stack error|an illegal instruction|unknown error|the launch "
            r"timed out)|(?:HSA_STATUS_ERROR|hardware exception)"
        ),
        "A GPU reports an error that programs seldom cause.",
        _DRAIN,
        "CUDA runtime",
        confidence=POSSIBLE,
        weight=1,
        confirm="dmesg for Xid errors; the same job on another node.",
    ),
    Signature(
        "unknown",
        "assertion",
        r"\.cu(?:h|da)?:\d+:.{0,200}Assertion .{0,120} failed",
        (
            "A kernel found an index out of range: a label beyond the classes, a token or position beyond its table, "
            "or an index of a gather."
        ),
        (
            "Compare the largest label and token id with the sizes of the output and of the embedding.",
            "Where the traceback points is no sign: run with CUDA_LAUNCH_BLOCKING=1, or the same batch on a CPU.",
        ),
        "PyTorch aten/src/ATen/native/cuda (Loss.cu, Indexing.cu), CUDA_KERNEL_ASSERT",
        weight=2,
        confirm="The condition that the line prints; the batch of that step.",
    ),
    Signature(
        "unknown",
        "device-side assert",
        r"CUDA error: device-side assert triggered",
        "A kernel's assertion failed, mostly of an index: a label or a token id out of range.",
        (
            "Find the line with 'Assertion ... failed' above: it names the condition.",
            "Run with CUDA_LAUNCH_BLOCKING=1, or the same batch on a CPU: the traceback then shows the place.",
        ),
        "PyTorch c10/cuda/CUDAException.cpp",
        confidence=POSSIBLE,
        weight=1,
        confirm="The condition of the assertion.",
    ),
    Signature(
        "hardware_fault",
        "nvlink|nvswitch",
        (
            rf"nvlink.{{0,40}}(?:error|fail|down|inactive)\w*{_NONE}(?![\w:]|.{{0,40}}[:=] ?0\b)|"
            rf"NVSwitch.{{0,30}}(?:fatal|error)\w*{_NONE}"
        ),
        "A link between GPUs reports errors.",
        _DRAIN,
        "NVIDIA Xid 74; fabric manager",
        weight=2,
        confirm="nvidia-smi nvlink -e.",
    ),
    Signature(
        "fp16_overflow",
        "loss scale",
        (
            r"Current loss scale already at minimum|loss scale.{0,30}(?:reached|is at).{0,20}minimum|"
            r"Minimum loss scale reached"
        ),
        ("Gradients overflow in every step until the loss scale is at its smallest: fp16 does not hold them."),
        _SCALE,
        "DeepSpeed deepspeed/runtime/fp16/loss_scaler.py; fairseq",
        weight=3,
        confirm="torch.isinf over activations and gradients of one step, layer by layer.",
    ),
    Signature(
        "oom_checkpoint",
        "failed to clone",
        r"Failed to clone\(\) tensor with name (?P<name>\S+)",
        (
            "The full state dict does not fit beside the model: {name} could not be copied, and the "
            "checkpoint is not whole."
        ),
        (
            "FullStateDictConfig(offload_to_cpu=True, rank0_only=True), or sharded checkpoints (DCP).",
            "Do not use the checkpoint that was written.",
        ),
        "PyTorch torch/distributed/fsdp/_state_dict_utils.py",
        weight=5,
    ),
    Signature(
        "tooling",
        "unhandled version|memoryvizunhandled",
        r"Unhandled version \d+.*MemoryViz|MemoryViz.*Unhandled",
        "The viewer of memory snapshots reads pickles up to protocol 4 only.",
        ("pickle.dump(snapshot, file, protocol=4).",),
        "pytorch/pytorch#183842",
        weight=3,
    ),
    Signature(
        "compile_skew",
        "torch._dynamo|recompile",
        r"torch\._dynamo.*recompile_limit|hit config\.recompile_limit|torch\._dynamo hit config",
        "A rank compiles again and again, while others may wait for it.",
        (
            "Static shapes, or mark_dynamic on every rank.",
            "Compile all ranks before the first collective, with a shared cache.",
        ),
        "PyTorch torch/_dynamo/convert_frame.py",
        severity=WARNING,
        confidence=POSSIBLE,
        weight=1,
    ),
    Signature(
        "alloc_retries",
        "cache flushes",
        r"(?P<n>\d{1,9}) pytorch allocator cache flushes since last step",
        (
            "The allocator emptied its cache in a step ({n} times): memory is so short that time is "
            "lost in cudaFree and cudaMalloc."
        ),
        (
            "A smaller micro-batch, more recomputation or more sharding, until there are none.",
            "All ranks at once: get_accelerator().empty_cache() in the loop.",
        ),
        "DeepSpeed deepspeed/runtime/zero/stage3.py",
        severity=WARNING,
        weight=2,
    ),
    Signature(
        "fp16_overflow",
        "lg_loss_scale",
        r"Found NaN, decreased lg_loss_scale",
        "Gradients are not finite, and the loss scale falls from step to step.",
        _SCALE,
        "openai/guided-diffusion guided_diffusion/fp16_util.py",
        weight=2,
    ),
    Signature(
        "long_non_collective_section",
        "ncclunique",
        r"is setting up NCCL communicator and retrieving ncclUniqueId from \[(?P<rank>\d+)\]",
        "A rank waited for rank {rank} to set NCCL up, which had not come to its first collective yet.",
        (
            "Prepare data before init_process_group, or in a job of its own, and cache them.",
            "Or give init_process_group a longer timeout.",
        ),
        "PyTorch ProcessGroupNCCL.cpp",
        confidence=POSSIBLE,
        weight=1,
        confirm="What rank {rank} was at: a progress bar, a download.",
    ),
    Signature(
        "mismatched_collectives",
        "mismatched collective",
        r"Mismatched collective detected",
        "NCCL found that ranks of a group do not call the same collective.",
        ("Make every rank take the same branch before this line.", "Compare the shapes that go into it by rank."),
        "NCCL src/init.cc",
        weight=2,
        confirm="Flight Recorder dumps of all ranks.",
    ),
    Signature(
        "watchdog_heartbeat",
        "heartbeat monitor",
        r"Heartbeat monitor timed out",
        "NCCL's watchdog did not answer its monitor: the process is blocked on the host.",
        ("py-spy dump of that process, while it is stuck.",),
        "PyTorch ProcessGroupNCCL.cpp, heartbeat monitor",
        confidence=POSSIBLE,
        weight=1,
    ),
    Signature(
        "low_mfu_small_work",
        "mfu",
        r"\bMFU\b.{0,12}\b0\.0*[1-9]\d* ?%",
        "Less than a hundredth of the device's arithmetic is used.",
        ("More work a step: a larger batch, packed sequences.", "Fewer GPUs."),
        "PaLM, arXiv:2204.02311, appendix B",
        severity=INFO,
        confidence=POSSIBLE,
    ),
)
