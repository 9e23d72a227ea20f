"""What goes wrong before the first step: ports, rendezvous, devices, shared memory."""

from __future__ import annotations

from meshwright.diagnose.finding import INFO, POSSIBLE
from meshwright.diagnose.signatures.signature import Signature

_PORT = (
    ("Give each job its own port: --master-port, --rdzv-endpoint=HOST:PORT, or --standalone on one node."),
    "Look for a process of an earlier run that still holds it: ss -ltnp.",
    ("If the launcher itself is started by srun or mpirun, start it once a node (--ntasks-per-node=1)."),
)
_MEET = (
    ("Start all nodes with the same --nnodes and --rdzv-endpoint, and check that each of them is alive."),
    ("Reach MASTER_ADDR:MASTER_PORT from every node (nc -zv); it must be an address of node 0, not 127.0.0.1."),
    "Open the firewall between the nodes for all TCP ports.",
)
_DEVICE = (
    "Call torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before anything else uses CUDA.",
    (
        "Start as many processes on a node as it has visible GPUs (--nproc-per-node), with no "
        "fixed CUDA_VISIBLE_DEVICES."
    ),
)
_SHM = (
    ("Give the container more: docker run --shm-size=16g or --ipc=host; in Kubernetes an emptyDir of medium Memory."),
    "Make /dev/shm writable: chmod 1777 /dev/shm; remove stale nccl-* and torch_* files in it.",
)
_STORE = "PyTorch torch/csrc/distributed/c10d/socket.cpp and TCPStore.cpp"
_NCCL_SHM = "NCCL src/misc/shmutils.cc"

LAUNCH = (
    Signature(
        "port_in_use",
        "29500",
        r"(?:port:? |:)(?P<port>29500)\b.*(?:EADDRINUSE|already in use)",
        "Port {port}, which every launcher takes unless told otherwise, is in use on this node: "
        "a second job, or the "
        "rest of an earlier one.",
        _PORT,
        _STORE,
        weight=3,
        confirm="ss -ltnp | grep {port} on that node.",
    ),
    Signature(
        "port_in_use",
        "in use|eaddrinuse",
        (
            r"(?:port:? ?|bind to \S*?:)(?P<port>\d{2,5})\b(?!.*29500).*(?:EADDRINUSE|address "
            r"already in use)"
        ),
        "Port {port} is in use on this node: another job, the rest of an earlier one, or the "
        "same launcher started "
        "twice.",
        _PORT,
        _STORE,
        confidence=POSSIBLE,
        weight=2,
        confirm="ss -ltnp | grep {port} on that node.",
    ),
    Signature(
        "port_in_use",
        "use",
        r"EADDRINUSE|address already in use",
        "A port that the job wants to listen on is in use.",
        _PORT,
        _STORE,
        confidence=POSSIBLE,
        weight=1,
    ),
    Signature(
        "port_in_use",
        "failed to listen",
        r"server socket has failed to listen on any local network address",
        "A port that the job wants to listen on cannot be had.",
        _PORT,
        _STORE,
        confidence=POSSIBLE,
    ),
    Signature(
        "rendezvous",
        "clients",
        r"waiting for clients\.? ?(?P<came>\d+)/(?P<all>\d+) clients? joined",
        ("Only {came} of {all} processes came to the store: the others were not started, or cannot reach it."),
        _MEET,
        _STORE,
        weight=2,
        confirm="The logs of the nodes that are missing.",
    ),
    Signature(
        "rendezvous",
        "store based barrier",
        r"Timed out initializing process group in store based barrier.*world_size=(?P<all>\d+), "
        r"(?:worker_count|num_workers_joined)=(?P<came>\d+)",
        "Only {came} of {all} processes came to init_process_group.",
        _MEET,
        "PyTorch torch/distributed/distributed_c10d.py",
        weight=2,
        confirm="The logs of the ranks that are missing.",
    ),
    Signature(
        "rendezvous",
        "timed out after",
        (
            r"client socket has timed out after (?P<time>\d+ ?m?s) while trying to connect to "
            r"\(?(?P<host>[^,)]+), (?P<port>[^)]+)"
        ),
        (
            "Nobody answered at {host}, port {port}, in {time}: the node that holds the store is "
            "not up, or not reachable."
        ),
        _MEET,
        _STORE,
        confidence=POSSIBLE,
        weight=2,
    ),
    Signature(
        "rendezvous",
        "rendezvous|c10d store",
        r"^(?!.*(?:failed to shutdown the|keep-alive heartbeat to the) rendezvous).*(?:"
        r"Rendezvous(?:Timeout|Connection|Closed|State)\w*Error|rendezvous (?:timed? ?out|is closed|failed|barrier)"
        r"|connection to the C10d store has failed)",
        "The nodes did not meet: the rendezvous failed or timed out.",
        _MEET,
        "PyTorch torch/distributed/elastic/rendezvous",
        confidence=POSSIBLE,
        weight=1,
    ),
    Signature(
        "rendezvous",
        "name|gai error|getaddrinfo",
        r"^(?!.*IPv6 network addresses).*(?:gai error|getaddrinfo|Name or service not known|"
        r"Temporary failure in name resolution)",
        "A host name of the job cannot be resolved.",
        _MEET,
        _STORE,
        confidence=POSSIBLE,
    ),
    Signature(
        "rendezvous",
        "socket",
        r"client socket has failed to connect to any network address of",
        "A process cannot connect to the store.",
        _MEET,
        _STORE,
        confidence=POSSIBLE,
        weight=3,
    ),
    Signature(
        "rendezvous",
        "socket",
        r"client socket has failed to connect to (?!any network address)",
        "A process tried more than once to connect to the store: it was not up yet, or has another address.",
        _MEET,
        _STORE,
        severity=INFO,
        confidence=POSSIBLE,
    ),
    Signature(
        "device_mapping",
        "duplicate gpu detected",
        (
            r"Duplicate GPU detected ?: rank (?P<a>\d+) and rank (?P<b>\d+) both on CUDA device "
            r"(?P<device>\w+)"
        ),
        ("Ranks {a} and {b} use the same GPU ({device}): more processes than GPUs, or the local rank is not used."),
        _DEVICE,
        "NCCL src/init.cc",
        weight=3,
        confirm="Print LOCAL_RANK and torch.cuda.current_device() on every rank.",
    ),
    Signature(
        "device_mapping",
        "no cuda",
        r"no CUDA-capable device is detected|No CUDA GPUs are available",
        "A process sees no GPU: none was given to it, or the driver does not answer.",
        ("Ask the scheduler for GPUs (--gres, --gpus-per-node), and give them to the container (--gpus all, --nv).",),
        "CUDA runtime, cudaErrorNoDevice",
        weight=2,
        confirm="nvidia-smi -L and CUDA_VISIBLE_DEVICES in that process.",
    ),
    Signature(
        "device_mapping",
        "invalid device ordinal",
        r"invalid device ordinal",
        ("A process asks for a GPU that the node does not have or does not show: more processes than visible GPUs."),
        _DEVICE,
        "CUDA runtime, cudaErrorInvalidDevice",
        weight=2,
        confirm="nvidia-smi -L and CUDA_VISIBLE_DEVICES on that node, beside --nproc-per-node.",
    ),
    Signature(
        "device_mapping",
        "perform barrier|currently unknown",
        r"using GPU (?P<gpu>\d+) (?:to perform barrier )?as .*currently unknown",
        ("Which GPU belongs to a process was not said before its first barrier; a wrong guess can hang the job."),
        (*_DEVICE, "Pass device_id to init_process_group, or device_ids to barrier."),
        "PyTorch ProcessGroupNCCL.cpp, which says so in healthy jobs as well",
        severity=INFO,
        confidence=POSSIBLE,
    ),
    Signature(
        "device_mapping",
        "expected all tensors",
        (
            r"Expected all tensors to be on the same device, but (?:found at least two devices|got "
            r"\w+ is on).*(?P<a>cuda:\d+)"
        ),
        "Tensors of one process lie on two devices.",
        _DEVICE,
        "PyTorch, TensorIterator",
        confidence=POSSIBLE,
        weight=1,
    ),
    Signature(
        "device_mapping",
        "requested gpu",
        r"You requested gpu: .*But your machine only has",
        "More GPUs are asked for than the node shows.",
        _DEVICE,
        "Lightning, device_parser.py",
        weight=2,
    ),
    Signature(
        "shm_too_small",
        "shm|posix_fallocate",
        (
            r"Call to (?:shm_open|posix_fallocate) failed|failed to extend /dev/shm|/dev/shm.*No space left|"
            r"shm_open.*failed"
        ),
        "Shared memory (/dev/shm) is too small, full, or not writable.",
        _SHM,
        _NCCL_SHM,
        weight=2,
        confirm="df -h /dev/shm and ls -ld /dev/shm inside of the container.",
    ),
    Signature(
        "shm_too_small",
        "bus error|insufficient shared memory",
        r"Bus error.*out of shared memory|insufficient shared memory \(shm\)"
        r"|killed by signal: Bus error",
        "A data loader's worker ran out of shared memory (/dev/shm).",
        (*_SHM, "Fewer workers, or a smaller prefetch_factor."),
        "PyTorch torch/utils/data/_utils/signal_handling.py",
        weight=3,
        confirm="df -h /dev/shm inside of the container.",
    ),
    Signature(
        "shm_too_small",
        "shared memory",
        (
            r"unable to (?:open|allocate|write to|resize|mmap).*shared memory|shared memory "
            r"object.*(?:failed|no space)"
        ),
        "Shared memory (/dev/shm) cannot be had.",
        _SHM,
        "PyTorch c10, MapAllocator.cpp",
        weight=2,
        confidence=POSSIBLE,
        confirm="df -h /dev/shm inside of the container.",
    ),
)
