"""What DDP, FSDP and checkpoints refuse: parameters without gradients, dtypes, shapes of another layout."""

from __future__ import annotations

from meshwright.diagnose.finding import CERTAIN, INFO, POSSIBLE
from meshwright.diagnose.signatures.signature import Signature

_UNUSED = (
    "Let every parameter take part in the loss, or remove the layers that do not.",
    ("DistributedDataParallel(find_unused_parameters=True), which walks the graph once more in each step."),
    "TORCH_DISTRIBUTED_DEBUG=DETAIL prints the names of the parameters.",
)
_TWICE = (
    ("Activation checkpointing with use_reentrant=False (gradient_checkpointing_kwargs in transformers)."),
    "DistributedDataParallel(static_graph=True) if the graph is the same in every step.",
    "No module whose parameters are used outside of its forward.",
)
_DTYPE = (
    "Cast all parameters of a wrapped module to one dtype before it is wrapped.",
    "fully_shard (FSDP2), which shards parameter by parameter, or use_orig_params=True.",
    "Wrap the modules of another dtype (norms, adapters, quantised weights) on their own.",
)
_RESHARD = (
    (
        "Resume with the layout that wrote it, or convert: PyTorch DCP, DeepSpeed's "
        "ds_to_universal.py, Megatron's converter."
    ),
    "Resize the embeddings to the checkpoint's vocabulary before sharding.",
    "Load the weights alone and begin with new optimizer states.",
)

WRAPPERS = (
    Signature(
        "ddp_unused_parameters",
        "finished reduction",
        r"Expected to have finished reduction in the prior iteration",
        ("Some parameters had no gradient in a step of DDP: they took no part in the loss on this rank."),
        _UNUSED,
        "PyTorch torch/csrc/distributed/c10d/reducer.cpp",
        weight=3,
        confirm="The parameter indices or names that the message lists.",
    ),
    Signature(
        "ddp_unused_parameters",
        "receive grad",
        (
            r"Parameters? (?:indices )?which did not receive grad for rank (?P<rank>\d+): "
            r"(?P<names>.{1,160})"
        ),
        "On rank {rank} these parameters took no part in the loss: {names}.",
        _UNUSED,
        "PyTorch torch/csrc/distributed/c10d/reducer.cpp",
        confidence=CERTAIN,
        weight=4,
    ),
    Signature(
        "ddp_unused_parameters",
        "find_unused_parameters=true was specified",
        r"find_unused_parameters=True was specified.*did not find any unused",
        ("find_unused_parameters=True costs a walk through the graph in each step, and nothing is unused."),
        ("Leave find_unused_parameters out.",),
        "PyTorch torch/csrc/distributed/c10d/reducer.cpp",
        severity=INFO,
    ),
    Signature(
        "ddp_checkpoint_reentrant",
        "ready",
        r"Expected to mark a variable ready only once|has been marked as ready twice",
        (
            "DDP saw a parameter's gradient twice in one step: re-entrant checkpointing, or "
            "parameters used outside of forward."
        ),
        _TWICE,
        "PyTorch torch/csrc/distributed/c10d/reducer.cpp",
        weight=3,
    ),
    Signature(
        "fsdp_dtype",
        "dtype",
        (
            r"(?:Must flatten tensors with|expects) (?:the same|uniform)(?: original parameter)? "
            r"dtype(?: but got (?P<a>[\w.]+) and (?P<b>[\w.]+))?"
        ),
        "A module that FSDP flattens has parameters of several dtypes ({a} and {b}).",
        _DTYPE,
        "PyTorch torch/distributed/fsdp/_flat_param.py",
        weight=3,
        confirm="{{p.dtype for p in module.parameters()}} of each wrapped module.",
    ),
    Signature(
        "fsdp_dtype",
        "uniform",
        r"Must flatten tensors with uniform `?requires_grad",
        "A module that FSDP flattens has trained and frozen parameters.",
        ("use_orig_params=True, or fully_shard (FSDP2).", "Wrap frozen and trained modules apart."),
        "PyTorch torch/distributed/fsdp/_flat_param.py",
        weight=2,
    ),
    Signature(
        "fsdp_dtype",
        "dtype|expected|!=",
        (
            r"expected (?:m1 and m2|mat1 and mat2|self and mat2|scalar type|query, key, and value) "
            r".*(?:same dtype|but (?:got|found))|(?:Float|BFloat16|Half) != (?:c10::)?(?:Float|"
            r"BFloat16|Half)"
        ),
        ("Tensors of two dtypes meet in one operation, as when part of a model is not cast by mixed precision."),
        _DTYPE,
        "PyTorch, matrix products",
        confidence=POSSIBLE,
        weight=1,
    ),
    Signature(
        "checkpoint_reshard",
        "size mismatch",
        (
            r"size mismatch for (?P<name>\S+?):? .*shape torch\.Size\((?P<was>\[[\d, ]*\])\) from "
            r"checkpoint.*torch\.Size\((?P<now>\[[\d, ]*\])\)"
        ),
        "{name} is {was} in the checkpoint and {now} in the model.",
        _RESHARD,
        "PyTorch torch/nn/modules/module.py",
        weight=2,
        confirm="Both configurations: vocabulary, layers, and the layout that wrote the checkpoint.",
    ),
    Signature(
        "checkpoint_reshard",
        "size of tensor",
        (
            r"The size of tensor a \((?P<a>\d+)\) must match the size of tensor b \((?P<b>\d+)\) at "
            r"non-singleton dimension 0"
        ),
        (
            "A shard has {a} rows and another part of it {b}: the model and the checkpoint differ in "
            "a sharded dimension."
        ),
        _RESHARD,
        "PyTorch, TensorIterator",
        confidence=POSSIBLE,
        weight=1,
        confirm="({a} - {b}) × the number of shards beside the difference of the two vocabularies.",
    ),
    Signature(
        "checkpoint_reshard",
        "checkpoint|state|size mismatch between saved",
        (
            r"CheckpointException|Size mismatch between saved|(?:checkpoint|"
            r"state.?dict).*(?:world.?size|mp.?size|tensor.?parallel|pipeline.?parallel).*(?:mismatch|"
            r"differ|does not match|not equal|!=)"
        ),
        "The checkpoint was written under another layout or for another shape.",
        _RESHARD,
        "PyTorch torch/distributed/checkpoint",
        weight=1,
    ),
    Signature(
        "checkpoint_reshard",
        "in state_dict",
        r"(?:Missing|Unexpected) key\(s\) in state_dict",
        "The checkpoint and the model do not have the same parameters.",
        (*_RESHARD, "Strip a wrapper's prefix (module., _orig_mod., _fsdp_wrapped_module.) from the keys."),
        "PyTorch torch/nn/modules/module.py",
        confidence=POSSIBLE,
    ),
)
