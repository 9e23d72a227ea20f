"""What frameworks refuse before the first step: shapes, batches and worlds that do not divide."""

from __future__ import annotations

from meshwright.diagnose.finding import POSSIBLE
from meshwright.diagnose.signatures.signature import Signature

_SEQUENCE = (
    ("Pad every sequence, packed ones too, to a multiple of tp, and of 2·cp·tp under context parallelism."),
    "Choose tp and cp that divide the sequence.",
)

CONFIGURATION = (
    Signature(
        "divisibility_sequence",
        "first dimension",
        r"First dimension of the tensor should be divisible by tensor parallel size",
        ("A batch's number of tokens is no multiple of the tensor-parallel size, which sequence parallelism needs."),
        _SEQUENCE,
        "Megatron-LM megatron/core/tensor_parallel/mappings.py",
        confidence=POSSIBLE,
        weight=3,
        confirm="Print the shape that goes into the embedding on the failing step.",
    ),
    Signature(
        "divisibility_sequence",
        "divisible",
        (
            r"seq(?:uence)?[_ ]?len(?:gth)?\b.{0,60}(?:must|should|has to) be divisible by.{0,80}|"
            r"(?:must|should) be divisible by .{0,40}(?:context|sequence)[_ ]parallel"
        ),
        "The sequence does not divide over the ranks that share it.",
        _SEQUENCE,
        "frameworks' argument checks",
        weight=2,
    ),
    Signature(
        "divisibility_sequence",
        "ulysses",
        (
            r"heads? % ulysses_sp_size|ulysses_sp_size % num_key_value_heads|divisible by (?:the "
            r")?ulysses"
        ),
        ("Ulysses shards heads: its size must divide them, and divide the key/value heads or be a multiple of them."),
        ("Choose a smaller Ulysses size, or ring attention beyond it.",),
        "arXiv:2309.14509",
        weight=2,
    ),
    Signature(
        "divisibility_heads",
        "heads",
        (
            r"(?:attention[_ ])?heads\b.{0,40}(?:must|should) be (?:evenly )?divisible "
            r"by.{0,60}(?:tensor|tp|mp_size|world|parallel)"
        ),
        "The attention heads do not divide over the tensor-parallel ranks.",
        ("Choose a tensor-parallel size that divides the heads, and the key/value heads.",),
        "frameworks' argument checks",
        weight=2,
    ),
    Signature(
        "divisibility_gqa",
        "heads|query_groups",
        (
            r"(?:num_key_value_heads|kv[_ ]heads|num_query_groups|key.?value heads)\b.{0,60}(?:must|"
            r"should) be (?:a )?(?:evenly )?(?:divisible|multiple)|(?:must|should) be divisible by "
            r"(?:num_)?(?:query_groups|kv_heads|key_value_heads)"
        ),
        ("The key/value heads do not divide over the tensor-parallel ranks, or do not divide the heads."),
        (
            (
                "Choose a tensor-parallel size that divides the key/value heads, or is a multiple of "
                "them where they may be copied."
            ),
        ),
        "frameworks' argument checks",
        weight=3,
    ),
    Signature(
        "divisibility_heads",
        "is not divisible by",
        r"^\W*(?:\w*Error: )?(?P<a>\d+) is not divisible by (?P<b>\d+)",
        ("{a} does not divide over {b} ranks: of what, the message does not say; attention heads in most cases."),
        ("Choose a tensor-parallel size that divides the heads, and the key/value heads.",),
        "Megatron-LM megatron/core/utils.py, ensure_divisibility; vLLM",
        confidence=POSSIBLE,
        weight=1,
        confirm="The frame above: attention, vocabulary or experts.",
    ),
    Signature(
        "divisibility_gqa",
        "is invalid for input of size",
        (
            r"shape '\[[\d, ]*-1, (?:64|80|96|128|192|256)\]' is invalid for input of size "
            r"(?P<size>\d+)"
        ),
        (
            "A projection of {size} elements does not hold whole heads: the key/value heads do not "
            "divide over the ranks."
        ),
        ("Choose a tensor-parallel size that divides the key/value heads.",),
        "PyTorch, Tensor.view in attention",
        confidence=POSSIBLE,
        weight=1,
        confirm="num_key_value_heads beside the tensor-parallel size.",
    ),
    Signature(
        "divisibility_sequence",
        "fp8 execution requires",
        r"FP8 execution requires 2D input matrices with height divisible by (?P<a>\d+)",
        "FP8 products need a number of tokens that {a} divides.",
        _SEQUENCE,
        "TransformerEngine pytorch/utils.py",
        weight=3,
        confirm="Tokens of the failing batch on one rank.",
    ),
    Signature(
        "pipeline_layout",
        "layers",
        (
            r"(?:num(?:ber)?[_ ](?:of )?(?:transformer )?layers|layers)\b.{0,60}(?:should|must) be "
            r"divisible by.{0,60}(?:pipeline|pp|stage)|assert num_layers % .*pipeline"
        ),
        "The layers do not divide over the pipeline's stages.",
        (
            "Choose a number of stages that divides the layers.",
            "Give the first and the last stage their own number of layers.",
        ),
        "Megatron-LM megatron/training/arguments.py",
        weight=3,
    ),
    Signature(
        "moe_imbalance",
        "expert",
        (
            r"(?:num(?:ber)?[_ ](?:of )?)?experts?\b.{0,50}(?:must|should) be divisible "
            r"by.{0,60}(?:expert|ep|parallel)"
        ),
        "The experts do not divide over the expert-parallel ranks.",
        ("Choose an expert-parallel size that divides the experts.",),
        "frameworks' argument checks",
        weight=2,
    ),
    Signature(
        "vocab_padding",
        "padded_vocab_size",
        r"padded_vocab_size.{0,60}\((?P<a>\d+)\).{0,60}(?:not equal|mismatch|differ).{0,60}\((?P<b>\d+)\)",
        "The vocabulary was padded to {a} when the checkpoint was written and is padded to {b} now.",
        ("Use the same --make-vocab-size-divisible-by and tensor-parallel size, or convert the checkpoint.",),
        "Megatron-LM megatron/training/checkpointing.py",
        weight=3,
    ),
    Signature(
        "vocab_padding",
        "vocab",
        (
            r"vocab\w*.{0,60}(?:must|should|not) be (?:evenly )?divisible by|vocab\w*.{0,40} is not "
            r"divisible"
        ),
        "The vocabulary does not divide over the ranks that share it.",
        ("Pad the vocabulary to a multiple of the ranks (Megatron: --make-vocab-size-divisible-by).",),
        "frameworks' argument checks",
        weight=2,
    ),
    Signature(
        "batch_config",
        "batch",
        r"Check batch related parameters|train_batch_size is not equal to micro_batch_per_gpu"
        r"|global[_ ]batch[_ ]size.{0,80}(?:not|must be|should be) (?:be )?(?:evenly )?divisible|"
        r"batch[_ ]size.{0,60}(?:must|should) be divisible by",
        "The global batch is not micro-batch × accumulation × data-parallel ranks.",
        ("Choose a global batch that micro-batch × data-parallel ranks divides.",),
        "DeepSpeed deepspeed/runtime/config.py; Megatron-LM num_microbatches_calculator.py",
        weight=1,
    ),
    Signature(
        "world_size_layout",
        "world|invalid parallel dims|mpisize",
        (
            r"world[_ ]?size.{0,60}(?:not|must be|should be) (?:evenly )?(?:be )?(?:divisible|a "
            r"multiple)|Invalid parallel dims|mesh should not be bigger than default world size|!= "
            r"WORLD_SIZE|mpiSize == tp \* pp|world[_ ]size.{0,40}(?:does not match|is not equal to)"
        ),
        "The layout does not multiply to the number of processes.",
        (
            ("data × tensor × pipeline × context must be the number of processes that the launcher starts."),
            "Print WORLD_SIZE on every process: a launcher that is started once a GPU shows 1.",
        ),
        ("torchtitan torchtitan/distributed/parallel_dims.py; PyTorch torch/distributed/device_mesh.py"),
        weight=3,
    ),
)
