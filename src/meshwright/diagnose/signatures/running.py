"""What goes wrong in a step: networks, devices, numbers; and the texts that only follow from something else."""

from __future__ import annotations

from meshwright.diagnose.finding import CERTAIN, INFO, POSSIBLE, WARNING
from meshwright.diagnose.signatures.signature import Signature

_DRAIN = (
    ("Take the node out of the pool and run its vendor's test (dcgmi diag -r 3, nvidia-smi -q -d ECC)."),
    "Resume from the last checkpoint on other nodes. No setting of NCCL helps.",
)
_LINK = (
    ("Count which adapter and which peer occur in most lines: one of them alone is a cable, a port or a node."),
    "All of them: routing, GID index, PFC or the subnet manager.",
    "Only then NCCL_IB_TIMEOUT and NCCL_IB_RETRY_CNT.",
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
_EARLIER = "The first error in time over all ranks; the log of the rank that ended first."


def _card(key: str, pattern: str) -> Signature:
    return Signature(
        "network_error",
        key,
        pattern,
        "A call to the network card failed.",
        (*_LINK, "ulimit -l unlimited (locked memory) in the container."),
        "NCCL src/misc/ibvwrap.cc",
        confidence=POSSIBLE,
        weight=3,
        confirm="ibstat, ulimit -l, and ib_write_bw between two nodes.",
    )


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
        "cuda error",
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
        "hardware_fault",
        "nvlink",
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
    _card("net/ib", r"NET/IB ?:.{0,200}(?:Got async event|port error|link down|LID change|GID (?:table|change))"),
    _card("ibv_", r"ibv_(?!open_device)\w+ (?:failed|error)"),
    _card("rdma", r"NCCL WARN.{0,200}RDMA.{0,200}fail"),
    Signature(
        "network_error",
        "connect",
        (
            r"(?:socketStartConnect|socketPollConnect|Call to connect|NCCL WARN.{0,120}?connect).{0,200}(?:refused|"
            r"timed out|No route to host|unreachable)|No route to host|Network is unreachable"
        ),
        "A rank cannot reach another one over the network.",
        (
            "Open all TCP ports between the nodes.",
            "Name the interface that leads to the others: NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME.",
        ),
        "NCCL src/misc/socket.cc",
        confidence=POSSIBLE,
        weight=2,
        confirm="ping and nc -zv between the two nodes.",
    ),
    Signature(
        "slow_network_wrong_transport",
        "device",
        r"Call to ibv_open_device failed|NET/IB ?: Unable to open device (?P<device>\S+)",
        "NCCL cannot open an InfiniBand or RoCE device that is there, and goes on with sockets.",
        (
            "Give the container the devices: --device /dev/infiniband, --cap-add IPC_LOCK, --ulimit memlock=-1.",
            "Name the device that is wired: NCCL_IB_HCA.",
        ),
        "NCCL src/transport/net_ib.cc",
        confidence=POSSIBLE,
        weight=4,
        confirm="NCCL_DEBUG=INFO should say NET/IB : Using [0]mlx5_0; ibv_devinfo in the container.",
    ),
    Signature(
        "slow_network_wrong_nic",
        "interface",
        r"NET ?(?:/Socket)? ?: Using (?:interface )?(?:\[\d+\])?(?P<name>lo|docker\d+|virbr\d+|br-\w+)\b",
        "NCCL uses {name}, an interface that does not lead to other nodes.",
        ("Set NCCL_SOCKET_IFNAME (and GLOO_SOCKET_IFNAME) to an interface of every node, or exclude it: ^lo,docker.",),
        "NCCL src/misc/socket.cc",
        confidence=POSSIBLE,
        weight=3,
        confirm="ip -br addr on every node.",
    ),
    Signature(
        "slow_network_wrong_nic",
        "interface",
        (
            r"(?:no socket interface found|Unable to find (?:a|any) (?:usable )?(?:network "
            r")?interface|Failed to find interface).*"
        ),
        "The interface that is asked for is not there.",
        (("Set NCCL_SOCKET_IFNAME (and GLOO_SOCKET_IFNAME) to an interface of every node: ip -br addr."),),
        "NCCL src/misc/socket.cc",
        weight=3,
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
        "unhandled version",
        r"Unhandled version \d+.*MemoryViz|MemoryViz.*Unhandled",
        "The viewer of memory snapshots reads pickles up to protocol 4 only.",
        ("pickle.dump(snapshot, file, protocol=4).",),
        "pytorch/pytorch#183842",
        weight=3,
    ),
    Signature(
        "compile_skew",
        "torch._dynamo",
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
        "network_error",
        "completion",
        r"Got completion (?:with )?error (?P<status>\d+)",
        "The network card reports a failed transfer (status {status}): the other side or the path to it is silent.",
        _LINK,
        "NCCL src/transport/net_ib.cc; ibv_wc_status",
        confidence=POSSIBLE,
        weight=2,
        confirm="The counters of the adapters and switch ports; ib_write_bw between the two nodes.",
    ),
    Signature(
        "slow_network_wrong_transport",
        "net/ofi",
        r"NET/OFI Could not find any optimal provider",
        "The plugin for EFA found no EFA device, so that NCCL goes on with sockets.",
        ("Attach an EFA interface to the instance, and show /dev/infiniband to the container.", "FI_PROVIDER=efa."),
        "aws-ofi-nccl src/nccl_ofi_net.c",
        confidence=POSSIBLE,
        weight=3,
        confirm="fi_info -p efa on the node; the log should say NET/OFI Selected Provider is efa.",
    ),
    Signature(
        "slow_network_wrong_transport",
        "libibverbs",
        r"Failed to open libibverbs\.so",
        "The library for InfiniBand is not there, so that NCCL can use sockets alone between nodes.",
        ("Install libibverbs (rdma-core) in the image, if the nodes have InfiniBand, RoCE or EFA.",),
        "NCCL src/misc/ibvwrap.cc",
        severity=INFO,
        confidence=POSSIBLE,
        weight=1,
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
        "network_error",
        "remote",
        r"ncclRemoteError|remote process exited or there was a network error",
        "A peer went away; why is in another rank's log.",
        ("Read the log of the rank that ended first.",),
        "NCCL src/nccl.h",
        confidence=POSSIBLE,
        consequence=True,
        confirm=_EARLIER,
    ),
    Signature(
        "network_error",
        "system error",
        r"unhandled system error|ncclSystemError",
        "NCCL failed in a call to the system; the warning before it says which.",
        ("Run with NCCL_DEBUG=WARN and read the line before this one.",),
        "NCCL src/nccl.h",
        confidence=POSSIBLE,
        consequence=True,
        confirm=_EARLIER,
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
