"""Models and clusters of the rules' tests, with the numbers that the rules read."""

from __future__ import annotations

from meshwright.spec.cluster import Cluster, Device, Link
from meshwright.spec.model import Experts, Model
from meshwright.spec.workload import Workload, make_workload

LLAMA_70B = Model("llama-2-70b", 80, 8192, 64, 8, 128, 28672, 32000, 4096)
GPT2 = Model(
    "gpt2", 12, 768, 12, 12, 64, 3072, 50257, 1024, gated_mlp=False, positions="learned", position_rows=1024,
    tied_embeddings=True,
)  # fmt: skip
MIXTRAL = Model("mixtral-8x7b", 32, 4096, 32, 8, 128, 14336, 32000, 32768, experts=Experts(8, 2, 14336))
H100 = Device("H100", 80e9, 3.35e12, {"fp32": 67e12, "fp16": 989e12, "bf16": 989e12, "fp8": 1979e12})
V100 = Device("V100", 32e9, 0.9e12, {"fp32": 15.7e12, "fp16": 125e12})


def cluster(devices: int, device: Device = H100) -> Cluster:
    """So many devices: eight a node, or one node where eight do not divide them."""
    per_node = 8 if devices % 8 == 0 else devices
    fast, slow = Link("NVLink", 450e9, 1e-6), Link("InfiniBand", 50e9, 5e-6)
    return Cluster(f"{devices}x{device.name}", device, devices // per_node, per_node, fast, slow, 8)


def work(seq_len: int = 4096, global_batch: int = 512, **options: object) -> Workload:
    """A workload of 4,096 tokens and 512 sequences unless said."""
    return make_workload(seq_len, global_batch, **options)
