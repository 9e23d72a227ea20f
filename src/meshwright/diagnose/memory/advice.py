"""What to change when memory runs out, in the order in which to try. Sources: PyTorch's notes on CUDA and FSDP, Hugging
Face's performance guides, the ZeRO paper."""

from __future__ import annotations

NO_SETTING = (
    "Do not expect anything of allocator settings (expandable_segments, max_split_size_mb): little is fragmented."
)
FRAGMENTATION = (
    "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (PYTORCH_ALLOC_CONF since torch 2.9).",
    "Keep shapes constant: pad or pack to one length, and run the largest batch first.",
    "Call torch.cuda.empty_cache() once after evaluation and after saving, not in every step.",
    "Without expandable segments: max_split_size_mb:512, or allocate large buffers first.",
)
LOGITS = (
    "Use a fused or chunked linear cross-entropy (Liger, CCE), which never holds all logits.",
    "Share the vocabulary over tensor-parallel ranks with a vocabulary-parallel loss.",
    "Halve the micro-batch or the sequence, which halves this tensor.",
    "In evaluation keep no logits on the device: eval_accumulation_steps=1, preprocess_logits_for_metrics.",
    "Do not convert the whole logits to fp32; do not return logits that nobody reads.",
)
SAVE = (
    "Save a sharded state dict (SHARDED_STATE_DICT, torch.distributed.checkpoint).",
    "If one file is needed: FullStateDictConfig(offload_to_cpu=True, rank0_only=True), or "
    "StateDictOptions(full_state_dict=True, cpu_offload=True).",
    "Drop every reference to the gathered state after the save, and call torch.cuda.empty_cache() once.",
    "Check the last checkpoint: it may be incomplete.",
)
LOAD = (
    "Load with torch.load(..., map_location='cpu', mmap=True), or torch.distributed.checkpoint into the sharded model.",
    "Delete the loaded dict before the first step.",
)
FIRST_DEVICE = (
    "Load checkpoints with map_location='cpu' (or f'cuda:{local_rank}').",
    "Call torch.cuda.set_device(local_rank) before anything else uses CUDA.",
    "Delete the loaded dict before the first step.",
)
OTHER_PROCESSES = (
    "End processes of earlier runs on this GPU (nvidia-smi shows their ids), or choose another GPU.",
    "Give each rank a GPU of its own: as many processes on a node as it has GPUs.",
)
HOST = (
    "Load on one rank and broadcast, or build on the meta device (low_cpu_mem_usage, sync_module_states, zero.Init).",
    "Raise the limit of the job or the container (--mem, memory limits), or start fewer processes on a node.",
    "Use fewer DataLoader workers and less prefetch; keep sample lists in arrays, not in Python objects.",
    "Do not offload optimizer states or parameters to a host that has no room for them.",
)
HOST_GROWS = (
    "Log the resident size of every rank and worker, to see which one grows.",
    "Detach what is kept over steps (losses, metrics), and bound caches of the dataset.",
    "Keep sample lists in numpy arrays or tensors: workers copy Python objects page by page as they count references.",
    "Use fewer workers, less prefetch, and persistent_workers=False.",
)
RETRIES = (
    "Use less memory until the count stands still: a smaller micro-batch, more recomputation, more sharding.",
    "With FSDP: limit_all_gathers=True. Otherwise free what is cached before the peak only, not in every step.",
    "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, which needs fewer cudaMalloc and cudaFree.",
)
_STEP = (
    "Halve the micro-batch and double the accumulation steps: same batch, about half the activations.",
    "Recompute activations (activation checkpointing), first selectively, then in full.",
    "Shard more: FSDP or ZeRO-3 over all ranks, then tensor or context parallelism.",
    "Use a fused cross-entropy and a shorter sequence.",
)
_SHARD = (
    "Shard parameters, gradients and optimizer states (FSDP, ZeRO-3) over more ranks.",
    "Keep less per parameter: 8-bit optimizer states, bf16 gradients, LoRA.",
    "Offload optimizer states to the host, if it has room.",
)
_STATE = (*_SHARD, "A smaller micro-batch does not help here: no activations are alive.")
STATE = (*_SHARD, "A smaller micro-batch and recomputation do not help: the model's state alone fills the device.")
"""For a model whose parameters, gradients and optimizer states leave no room."""


def capacity(phase: str) -> tuple[str, ...]:
    """For a device that is too small for what a phase needs."""
    return _STATE if phase in ("build", "optimizer", "load") else _STEP
