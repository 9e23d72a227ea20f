"""Implementation: what the software, not the device, does to time and memory.

nanotron's eager layers cost milliseconds of launches each, Megatron's are fused, XLA's and inductor's compiled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache

from meshwright.catalog.software_files import implementation_tables
from meshwright.spec.errors import RequestError, WorkloadError


@dataclass(frozen=True, slots=True)
class Implementation:
    """The few constants of one class of software; fitted on published runs with role `fit`."""

    name: str
    layer_seconds: float = 0.5e-3
    """Host seconds to launch one layer's forward kernels: a floor under the layer's time."""
    backward_launches: float = 1.5
    """Launch time of backward, relative to forward."""
    tensor_parallel_launches: float = 0.05
    """What eight tensor ranks add to the launch time, as a share, growing with the square of their number."""
    dispatch_once: bool = False
    """Experts' tokens cross to another node once and are copied there (DeepEP, HybridEP), not once an expert."""
    mixture_launches: float = 1.0
    """Launch time of a mixture-of-experts layer, relative to a dense one: routing and permuting are many kernels."""
    attention: float = 1.0
    """Speed of the attention kernel, relative to the best one for the device."""
    elementwise: float = 1.0
    """Memory traffic of norms, activations and residuals, relative to one fused kernel each."""
    micro_batch_seconds: float = 0.0
    """Host seconds that a stage spends on each micro-batch beside its layers."""
    step_seconds: float = 5e-3
    """Seconds of a step that no layer explains: data, loss reduction, clipping, logging."""
    score_traffic: float = 1.0
    """The same for attention scores that go through memory: scale, mask, softmax and dropout as one kernel or four."""
    accumulation_bytes: float = 0.0
    """Memory traffic a parameter and micro-batch of a sharded optimizer that adds up gradients in buffers of its own;
    0: fused into the weight gradient."""
    bucket_bytes: float = 25e6
    """Bytes of gradients or parameters that one data-parallel collective carries."""
    bucket_bytes_per_rank: float = 0.0
    """Buckets are at least this many bytes a data-parallel rank, so that large groups are not bound by latency."""
    optimizer_traffic: float = 1.5
    """Memory traffic of the optimizer step, relative to reading and writing each state once."""
    overlap: float = 0.9
    """Share of the backward time behind which data-parallel traffic can hide; 0: none is hidden."""
    overlap_slowdown: float = 0.1
    """Share of the hidden traffic's time that compute loses to it (SMs and bandwidth)."""
    hidden_copies: float = 0.0
    """Copies of a layer's hidden activations kept beyond the fused kernels' (norms in fp32, rotary, residuals)."""
    ffn_copies: float = 0.0
    """Copies of the feed-forward part's inner activations kept beyond the fused kernel's input and output."""
    tensor_copies: float = 0.0
    """Further copies of a layer's hidden activations, on a tensor rank's tokens, that tensor-parallel modules keep."""
    persistent_gradients: bool = True
    """Gradients are allocated at all times; otherwise they appear in the backward of the first micro-batch."""
    balanced_by_cost: bool = False
    """Pipeline stages are cut by compute, the head counted; otherwise every stage gets as many layers."""
    logits_bytes: float = 10.0
    """Bytes alive a logit at the loss."""
    head_copies: float = 0.0
    """Copies of the head's gathered input alive at the loss: whole tokens and hidden width on every tensor rank."""
    gathered_layers: float = 2.0
    """Layers whose parameters are whole at once under ZeRO-3 (prefetch included)."""
    transient: float = 1.0
    """Bytes of activation gradients alive in one layer's backward, relative to the fused block's."""
    reduction_bytes: float = 0.0
    """Bytes a parameter of gradient buckets beside the gradients (below ZeRO-3)."""
    workspace_bytes: float = 0.0
    """Bytes of libraries' workspaces and the like that the allocator holds at any instant."""
    step_bytes: float = 0.0
    """Temporary bytes a parameter in the optimizer step (foreach copies)."""


@cache
def implementations() -> Mapping[str, Implementation]:
    """The classes of software by name, from `catalog/implementations.toml`. Raises RequestError: a broken table."""
    known = {f.name for f in fields(Implementation)} - {"name"}
    found = {}
    for name, table in implementation_tables().items():
        unknown = sorted(set(table) - known)
        if unknown:
            raise RequestError(f"implementations.toml, [{name}]: unknown constant {unknown[0]}.", sorted(known))
        found[name] = Implementation(name=name, **table)
    return found


def load_implementation(name: str) -> Implementation:
    """The class of software called `name`. Raises WorkloadError with the legal names."""
    found = implementations().get(name)
    if found is None:
        raise WorkloadError(f"There is no implementation class {name!r}.", sorted(implementations()))
    return found
