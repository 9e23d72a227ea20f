"""Rules of tensor and sequence parallelism.

Megatron-LM's TransformerConfig asks for heads divisible by the tensor degree, and for key/value heads (query groups)
that are a multiple of it (megatron-core before 0.16) or a multiple or a divisor (since). Its tokenizer code pads the
vocabulary to a multiple of 128 × tensor. torchtitan's ParallelDims asks for sequences divisible by tensor × context.
No runtime splits the hidden size itself, so it may be any number.
"""

from __future__ import annotations

from meshwright.spec.layout import Layout
from meshwright.spec.model import Model
from meshwright.spec.rules.rule import Job, Note, Refusal, Rule, divisors, legal_degrees, nearest

VOCABULARY_MULTIPLE = 128
"""Megatron's --make-vocab-size-divisible-by."""


def _dense_width(model: Model) -> int:
    """Width that every rank splits in layers without experts; 0: there is no such layer."""
    return model.ffn_hidden if model.moe_layers < model.layers else 0


def _legal(job: Job, layout: Layout) -> list[str]:
    degrees = legal_degrees(RULES, job, layout, "tensor", divisors(job.model.heads))
    return [f"tp{degree}" for degree in degrees]


def _explain_heads(job: Job, layout: Layout) -> Refusal:
    return f"{job.model.heads} attention heads cannot be split over {layout.tensor} tensor ranks.", _legal(job, layout)


def _explain_kv_heads(job: Job, layout: Layout) -> Refusal:
    text = f"{job.model.kv_heads} key/value heads are neither a multiple nor a divisor of {layout.tensor} tensor ranks."
    return text, _legal(job, layout)


def _explain_ffn(job: Job, layout: Layout) -> Refusal:
    text = f"A feed-forward width of {job.model.ffn_hidden} cannot be split over {layout.tensor} tensor ranks."
    return text, _legal(job, layout)


def _explain_experts(job: Job, layout: Layout) -> Refusal:
    e = job.model.experts
    assert e is not None
    text = f"Experts of width {e.ffn_hidden} (shared: {e.shared_ffn_hidden}) do not split over {layout.tensor} ranks."
    return text, _legal(job, layout)


def _explain_sequence(job: Job, layout: Layout) -> Refusal:
    unit, seq = layout.tensor * layout.context, job.workload.seq_len
    text = f"Sequence parallelism splits {seq} tokens over tensor × context = {unit} ranks, which does not divide them."
    lengths = [f"sequence length {n}" for n in nearest((seq // unit * unit, (seq // unit + 1) * unit), seq) if n]
    return text, [*lengths, f"tp{layout.tensor}:nosp", *_legal(job, layout)]


RULES: tuple[Rule, ...] = (
    Rule(
        "attention heads are not divisible by the tensor degree",
        lambda job, c: job.model.heads % c.tensor != 0,
        _explain_heads,
    ),
    Rule(
        "key/value heads are neither a multiple nor a divisor of the tensor degree",
        lambda job, c: (job.model.kv_heads % c.tensor != 0) & (c.tensor % job.model.kv_heads != 0),
        _explain_kv_heads,
    ),
    Rule(
        "the feed-forward width is not divisible by the tensor degree",
        lambda job, c: _dense_width(job.model) % c.tensor != 0,
        _explain_ffn,
    ),
    Rule(
        "the experts' width is not divisible by the tensor degree",
        lambda job, c: (
            job.model.experts is not None
            and (
                ((c.expert == 1) & (job.model.experts.ffn_hidden % c.tensor != 0))
                | (job.model.experts.shared_ffn_hidden % c.tensor != 0)
            )
        ),
        _explain_experts,
    ),
    Rule(
        "sequence parallelism does not divide the sequence",
        lambda job, c: (
            (c.tensor > 1) & (c.sequence_parallel > 0) & (job.workload.seq_len % (c.tensor * c.context) != 0)
        ),
        _explain_sequence,
    ),
)


def _replicated_kv_heads(job: Job, layout: Layout) -> str | None:
    kv, tensor = job.model.kv_heads, layout.tensor
    if job.model.latent is not None or tensor <= kv:
        return None
    return (
        f"Each of the {kv} key/value heads is kept by {tensor // kv} tensor ranks: megatron-core before 0.16 refuses "
        f"(query groups must be a multiple of {tensor}), torchtitan's plans need tp{kv} or less."
    )


def _padded_vocabulary(job: Job, layout: Layout) -> str | None:
    unit, vocabulary = VOCABULARY_MULTIPLE * layout.tensor, job.model.vocab
    added = -vocabulary % unit
    if layout.tensor == 1 or not added:
        return None
    return (
        f"Megatron pads the vocabulary of {vocabulary} by {added} rows to {vocabulary + added}, a multiple of "
        f"{VOCABULARY_MULTIPLE} × {layout.tensor}; PyTorch's DTensor pads nothing: some ranks hold fewer rows."
    )


def _beyond_node(job: Job, layout: Layout) -> str | None:
    if layout.tensor <= job.cluster.devices_per_node:
        return None
    return (
        f"Tensor parallelism over {layout.tensor} ranks leaves the node of {job.cluster.devices_per_node} devices: "
        "every layer's collectives run at network speed."
    )


NOTES: tuple[Note, ...] = (_replicated_kv_heads, _padded_vocabulary, _beyond_node)
