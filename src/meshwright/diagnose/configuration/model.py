"""Layers over stages, experts over ranks, tied embeddings and vocabularies over shards.

Rules of Megatron-LM (arguments.py: layers by stages; decoder_first/last_pipeline_num_layers; issues #1304, #1778),
DeepSpeed-MoE and vLLM PR #21497 (a remainder of experts on one rank), torchtitan #1136 (uneven vocabulary shards).
"""

from __future__ import annotations

from collections.abc import Iterator

from meshwright.diagnose.configuration.legal import common, listed, neighbours
from meshwright.diagnose.configuration.settings import Job
from meshwright.diagnose.finding import CERTAIN, ERROR, INFO, LIKELY, POSSIBLE, WARNING, Finding

PAD = 128
"""Megatron-LM pads a vocabulary to a multiple of this and of the tensor degree (--make-vocab-size-divisible-by)."""


def stages(job: Job) -> Iterator[Finding]:
    """Layers fill stages and their chunks evenly, or the first and last stage are told their own number."""
    layers, pp, vpp = job.number("layers"), job.number("pp"), max(job.number("vpp"), 1)
    first, last = job.number("first_layers"), job.number("last_layers")
    if first or last:
        yield from _uneven(job, layers, pp, first, last)
        return
    if chunk := job.number("layers_per_chunk"):
        vpp = layers // pp // chunk if layers and pp and layers % (pp * chunk) == 0 else vpp
    if layers and pp > 1 and layers % (pp * vpp):
        fitting = [one for one in common(layers) if one > 1 or layers == 1]
        chunks = f" × {vpp} chunks" if vpp > 1 else ""
        yield Finding(
            "pipeline_layout", ERROR, LIKELY if job.is_told("layers", "pp", "vpp") else POSSIBLE, (),
            f"{layers} layers do not fill {pp} pipeline stages{chunks} evenly: {layers} is no multiple of {pp * vpp}.",
            job.evidence("layers", "pp", "vpp"),
            change=(
                f"Take a number of stages that divides {layers}: {listed(fitting)}.",
                "Or give the first and last stages their own number of layers "
                "(--decoder-first/last-pipeline-num-layers), "
                "or an explicit layout.",
            ), weight=2,
        )  # fmt: skip


def _uneven(job: Job, layers: int, pp: int, first: int, last: int) -> Iterator[Finding]:
    ends = job.evidence("first_layers", "last_layers", "layers", "pp")
    told = " and ".join(f"{count} in the {name} stage" for name, count in (("first", first), ("last", last)) if count)
    if pp == 1 or ("pp" not in job.settings and layers):
        yield Finding(
            "pipeline_layout", ERROR, LIKELY if pp == 1 else POSSIBLE, (),
            f"There is one pipeline stage, and {told} was asked for: Megatron-LM then builds only those layers and "
            f"still reports the work of {layers or 'all'}.",
            ends, "Count the parameters that the program prints.",
            ("Leave out --decoder-first/last-pipeline-num-layers where there is one stage.",), weight=2,
        )  # fmt: skip
        return
    middle, between = layers - first - last, pp - bool(first) - bool(last)
    if layers and pp > 1 and (middle < 0 or (between and middle % between) or (not between and middle)):
        yield Finding(
            "pipeline_layout", ERROR, CERTAIN, (),
            f"With {told}, {middle} of {layers} layers are left for {between} stages between, which they do not fill.",
            ends, change=("Choose first and last so that the rest is a multiple of the stages between.",), weight=2,
        )  # fmt: skip


def experts(job: Job) -> Iterator[Finding]:
    """Every rank of the expert group has as many experts."""
    count, ep = job.number("experts"), job.number("ep")
    if count and ep > 1 and count % ep:
        even = count / ep
        worst = count // ep + count % ep
        yield Finding(
            "moe_imbalance", WARNING, CERTAIN if job.is_told("experts", "ep") else LIKELY, (),
            f"{count} experts are no multiple of {ep} expert-parallel ranks: a rank that takes the remainder has "
            f"{worst}, "
            f"{worst / even:.1f} times an even share, and all wait for it.",
            job.evidence("experts", "ep"), "Print how many experts each rank holds.",
            (f"Take an expert degree that divides {count}: {listed(common(count))}.",
             f"Or spread the remainder: no rank more than {-(-count // ep)} experts."), weight=2,
        )  # fmt: skip


def tied(job: Job) -> Iterator[Finding]:
    """A tied embedding lies on the first and the last stage; nothing is wrong where a framework sums its gradients."""
    if job.number("pp") > 1 and (job.on("tied") or job.off("untied")):
        yield Finding(
            "pipeline_tied_embeddings", INFO, POSSIBLE, (),
            "Input and output embeddings are tied and lie on different pipeline stages: their gradients must be summed "
            "before every update, or the copies drift apart silently.",
            job.evidence("pp", "tied", "untied"), "Compare a checksum of both copies after some steps.",
            ("See that the framework all-reduces the embedding's gradient between the first and the last stage.",),
        )  # fmt: skip


def vocabulary(job: Job) -> Iterator[Finding]:
    """An unpadded vocabulary is split unevenly."""
    size, tp = job.number("vocabulary"), job.number("tp")
    if size and tp > 1 and size % tp and not job.number("padded_vocabulary"):
        yield Finding(
            "vocab_padding", INFO, POSSIBLE, (),
            f"A vocabulary of {size} is no multiple of {tp} tensor ranks: it needs padding, or shards are uneven.",
            job.evidence("vocabulary", "tp"),
            "Compare the loss of the first steps after a resume with that of the run without.",
            (f"Pad it to {listed(neighbours(size + PAD * tp - 1, PAD * tp)[:1])} (a multiple of {PAD} × {tp}).",),
        )  # fmt: skip
