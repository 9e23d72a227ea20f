"""A published run as Model, Cluster, Workload and Layout, so that it can be priced like any plan."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache

from meshwright.catalog.cluster_files import Table
from meshwright.catalog.software_files import framework_tables
from meshwright.cost.parameters import parameters
from meshwright.plan.memory_reading import FULLEST, MemoryReading, reading_of
from meshwright.plan.published import PublishedRun
from meshwright.spec.cluster import Cluster
from meshwright.spec.errors import RequestError
from meshwright.spec.layout import Layout
from meshwright.spec.model import Model
from meshwright.spec.model_config import list_models
from meshwright.spec.run_links import cluster_of_run
from meshwright.spec.workload import Workload

GATED = ("llama", "qwen", "internlm", "baichuan", "nanotron", "mistral", "mixtral")
"""Model names whose feed-forward part has three matrices; the other dense ones are GPTs and BERTs."""


TIE_TOLERANCE = 0.01
"""A stated size this close to the usual tying's leaves it alone."""


class UnpricedRunError(RequestError):
    """A published run that lacks something without which it has no price."""


@dataclass(frozen=True, slots=True)
class RunNouns:
    """What a published run trained, on what, how."""

    model: Model
    cluster: Cluster
    workload: Workload
    layout: Layout
    reading: MemoryReading = FULLEST
    """What the run's memory figure is a reading of."""


def nouns_of_run(run: PublishedRun) -> RunNouns:
    """The nouns of a published run. Raises UnpricedRunError, naming what is missing or not modelled."""
    for column in ("dp", "tp", "pp", "global_batch", "microbatch"):
        if run.count(column) is None:
            raise UnpricedRunError(f"{column} is not stated")
    software = framework_of(run.text("framework"))
    model = _model(run)
    layout = _layout(run, software, model)
    if layout.devices != run.devices:
        raise UnpricedRunError(f"the layout {layout} needs {layout.devices} devices, the run had {run.devices}")
    workload = _workload(run, software, model)
    if workload.global_batch % (layout.data * layout.micro_batch):
        raise UnpricedRunError("the global batch is no multiple of data ranks × micro-batch")
    cluster = cluster_of_run(
        run.device, run.devices, run.count("gpus_per_node"), run.text("intra_link"), run.text("inter_link")
    )
    precision = workload.precision
    if precision not in cluster.device.peak_flops:
        raise UnpricedRunError(f"{cluster.device.name} has no {precision} figure in the catalogue")
    return RunNouns(model, cluster, workload, layout, reading_of(software))


def framework_of(text: str) -> Table:
    """The entry of `catalog/frameworks.toml` that a run's framework falls under."""
    low = text.lower()
    return next(entry for entry in framework_tables() if entry["match"] in low)


def _number(run: PublishedRun, column: str, default: int = 0) -> int:
    return run.count(column) or default


@cache
def _presets() -> tuple[Model, ...]:
    return list_models()


def _model(run: PublishedRun) -> Model:
    heads, hidden = _number(run, "heads"), _number(run, "hidden")
    layers, vocab = _number(run, "layers"), _number(run, "vocab")
    if not heads:
        raise UnpricedRunError("heads are not stated")
    if _number(run, "moe_experts"):
        return _mixture(run, layers, hidden, heads)
    if not vocab:
        raise UnpricedRunError("the vocabulary is not stated")
    model = _dense(run, layers, hidden, heads, vocab)
    stated = run.measure("params_b")
    if stated is None:
        return model
    # the size that a source states says whether its two vocabulary tables are one
    choices = [replace(model, tied_embeddings=tied) for tied in (model.tied_embeddings, not model.tied_embeddings)]
    return min(
        choices, key=lambda choice: abs(parameters(choice).total - stated * 1e9) / (stated * 1e9) > TIE_TOLERANCE
    )


def _dense(run: PublishedRun, layers: int, hidden: int, heads: int, vocab: int) -> Model:
    name = run.model_name
    gated = any(word in name.lower() for word in GATED)
    bert = "bert" in name.lower()
    return Model(
        name=name,
        family="llama" if gated else "bert" if bert else "gpt2",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=_number(run, "kv_heads", heads),
        head_dim=hidden // heads,
        ffn_hidden=_number(run, "ffn_hidden", 4 * hidden),
        vocab=vocab,
        max_positions=_number(run, "seq_len"),
        gated_mlp=gated,
        norm="rmsnorm" if gated else "layernorm",
        qkv_bias=not gated,
        attention_out_bias=not gated,
        mlp_bias=not gated,
        positions="rotary" if gated else "learned",
        position_rows=0 if gated else _number(run, "seq_len"),
        tied_embeddings=not gated,
        causal=not bert,
    )


def _mixture(run: PublishedRun, layers: int, hidden: int, heads: int) -> Model:
    """The preset with the run's width, heads and experts: a row does not say all of a mixture's numbers."""
    experts, chosen = _number(run, "moe_experts"), _number(run, "moe_topk")
    for preset in _presets():
        e = preset.experts
        if e and (preset.hidden, preset.heads, e.count, e.per_token) == (hidden, heads, experts, chosen):
            if preset.layers == layers:
                return preset
            dense = min(e.first_dense_layers, 1) if layers < preset.layers else e.first_dense_layers
            return replace(preset, name=run.model_name, layers=layers, experts=replace(e, first_dense_layers=dense))
    raise UnpricedRunError(f"no preset has this mixture's numbers ({experts} experts, hidden {hidden})")


def _workload(run: PublishedRun, software: Table, model: Model) -> Workload:
    precision, states = _precision(run), software["states"]
    text = run.text("precision").lower()
    if "pure" in text:
        states = "pure"
    elif "fp32 accum" in run.text("zero_stage_or_sharding").lower() or "fp32 grad" in text:
        states = "mixed-fp32-gradients"
    attention = run.text("attention").lower()
    fused = software["fused_attention"] if not attention else "unfused" not in attention
    compiled = run.text("compile") == "y" and software["implementation"] == "eager"
    return Workload(
        seq_len=_number(run, "seq_len"),
        global_batch=_number(run, "global_batch"),
        precision=precision,
        optimizer="lamb" if "lamb" in run.text("framework").lower() else "adamw",
        states=states,
        causal=model.causal,
        fused_attention=fused,
        implementation="compiled" if compiled else software["implementation"],
        dropout=software["dropout"],
        overlap=software["overlap"],
    )


def _precision(run: PublishedRun) -> str:
    text = run.text("precision").lower()
    if not text:
        return "fp16" if "deepspeed" in run.text("framework").lower() else "bf16"
    for key, precision in (("nvfp4", "fp4"), ("fp8", "fp8"), ("bf16", "bf16"), ("fp16", "fp16"), ("tf32", "tf32")):
        if key in text:
            if precision in ("fp4",):
                raise UnpricedRunError(f"precision {text} is not modelled")
            return precision
    return "fp32"


def _layout(run: PublishedRun, software: Table, model: Model) -> Layout:
    data, tensor, pipeline, context = (_number(run, column, 1) for column in ("dp", "tp", "pp", "cp"))
    stage = run.zero_stage if run.zero_stage is not None else int(software["zero_stage"])
    if "ZeRO-2 style" in run.text("zero_stage_or_sharding") or "SHARD_GRAD_OP" in run.text("zero_stage_or_sharding"):
        stage = 2
    group = re.search(r"over (\d+) GPUs|group (\d+)", run.text("zero_stage_or_sharding"))
    shard = min(int(group.group(1) or group.group(2)), data) if group and stage else data if stage else 1
    sharding = run.text("zero_stage_or_sharding").lower()
    offload = ["optimizer"] if "optimizer offload" in sharding or "cpu offload" in sharding else []
    if "param offload" in sharding or "full cpu offload" in sharding:
        offload.append("parameters")
    stated = run.text("sp")
    virtual = _number(run, "vpp", 1) if pipeline > 1 else 1
    return Layout(
        replicate=data // shard,
        shard=shard,
        zero_stage=stage if stage < 3 or data * context > 1 else 0,
        context=context,
        context_kind="ring",
        tensor=tensor,
        sequence_parallel=(stated == "y") if stated else bool(software["sequence_parallel"]),
        expert=_number(run, "ep", 1) if model.experts else 1,
        pipeline=pipeline,
        schedule="interleaved1f1b" if virtual > 1 else "1f1b",
        virtual_stages=virtual,
        micro_batch=_number(run, "microbatch"),
        recompute=run.recompute or "none",
        offload=tuple(offload),
    )
