"""Inputs: the numbers of a page, from options, from the nouns (model, cluster, layout), or from its defaults."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from meshwright.cost.parameters import parameters
from meshwright.cost.rank_layers import balanced_layers
from meshwright.cost.shares import edge_share, layer_share
from meshwright.plan.defaults import choose_global_batch, choose_seq_len
from meshwright.plan.explain.options import OPTIONS, flag
from meshwright.plan.explain.topics import Topic
from meshwright.spec.cluster import Cluster, Link
from meshwright.spec.cluster_text import parse_cluster
from meshwright.spec.columns import columns_of
from meshwright.spec.errors import RequestError
from meshwright.spec.layout import V_SCHEDULES, Layout
from meshwright.spec.model import Experts, Model
from meshwright.spec.workload import StateBytes, Workload, make_workload

DEVICE = "A100-40GB"
"""The device of pages that need one and were told none."""
VOCABULARY = 32_000
FLAT_DEVICES = 2**20
"""Devices on the one link of a cluster that is given by bandwidth and latency alone."""

BY_MODEL = ("parameters", "layers", "hidden", "heads", "experts", "per_token")
BY_CLUSTER = ("bandwidth", "latency", "node_bandwidth", "per_node")
BY_LAYOUT = {
    "stages": "pipeline",
    "schedule": "schedule",
    "virtual_stages": "virtual_stages",
    "micro_batch": "micro_batch",
    "servers": "servers",
    "staleness": "staleness",
    "replicas": "replicate",
    "tensor": "tensor",
    "recompute": "recompute",
    "zero": "zero_stage",
}
"""Options that a layout answers, and the Layout field that does."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a page computes with."""

    model: Model
    cluster: Cluster
    layout: Layout | None
    """The reader's layout, if there is one."""
    parameters: float = 7.1e9
    """On one rank, before the axis of the page divides them."""
    ranks: int = 8
    layers: int = 32
    hidden: int = 4096
    heads: int = 32
    seq_len: int = 4096
    micro_batch: int = 1
    micro_batches: int = 8
    global_batch: int = 64
    states: str = "mixed"
    zero: int = 0
    replicas: int = 1
    tensor: int = 1
    stages: int = 8
    schedule: str = "1f1b"
    virtual_stages: int = 1
    recompute: str = "none"
    experts: int = 64
    per_token: int = 2
    lora_rank: int = 16
    servers: int = 2
    staleness: int = 0
    size: float = 14e9
    bandwidth: float = 25e9
    node_bandwidth: float = 300e9
    per_node: int = 8
    latency: float = 5e-6
    step_time: float = 10.0
    compute_time: float = 1.0

    @property
    def workload(self) -> Workload:
        """One micro-batch's work on one data rank."""
        return make_workload(self.seq_len, self.micro_batch, causal=self.model.causal, states=self.states)

    @property
    def state_bytes(self) -> StateBytes:
        """Bytes a parameter of mixed-precision AdamW."""
        from meshwright.spec.optimizer import state_bytes

        return state_bytes(self.workload)


DEFAULTS: Mapping[str, Any] = {f.name: f.default for f in fields(Inputs) if f.name in OPTIONS}


def read_inputs(
    topic: Topic,
    given: Mapping[str, str],
    model: Model | None = None,
    cluster: Cluster | None = None,
    layout: Layout | None = None,
) -> Inputs:
    """The numbers of `topic`: options first, then the nouns, then defaults. Raises RequestError.

    Refused: an option or noun that the topic does not read, and an option that contradicts a noun.
    """
    _check_read(topic, given, model, cluster, layout)
    values: dict[str, Any] = {k: DEFAULTS[k] if value is None else value for k, value in topic.options.items()}
    if layout is not None:
        # A layout is of a whole job: it needs both other nouns.
        model = model or _default_model()
        cluster = cluster or _usual_cluster(layout.devices)
    values |= {k: v for k, v in _from_nouns(topic, model, cluster, layout).items() if k in topic.options}
    values |= {name: OPTIONS[name].read(name, str(text)) for name, text in given.items()}
    if "virtual_stages" in topic.options and "virtual_stages" not in given and layout is None:
        values["virtual_stages"] = 2 if values.get("schedule") in V_SCHEDULES else values["virtual_stages"]
    if model is not None and "seq_len" not in given:
        values["seq_len"] = min(values.get("seq_len", DEFAULTS["seq_len"]), model.max_positions)
    if layout is not None and model is not None and cluster is not None:
        values |= _usual_work(given, values, model, cluster, layout)
    numbers = {**DEFAULTS, **values}
    return Inputs(
        model=model or _made_model(topic, numbers),
        cluster=cluster or _made_cluster(topic, numbers),
        layout=layout,
        **values,
    )


def _usual_work(
    given: Mapping[str, str], values: Mapping[str, Any], model: Model, cluster: Cluster, layout: Layout
) -> dict[str, int]:
    """Sequence length, global batch and micro-batches of a whole job: as `estimate` chooses what is not given."""
    seq_len = values["seq_len"] if "seq_len" in given else choose_seq_len(model)
    unit = layout.data * layout.micro_batch
    if "micro_batches" in given:
        global_batch = values["micro_batches"] * unit
    elif "global_batch" in given:
        global_batch = values["global_batch"]
    else:
        global_batch = choose_global_batch(model, cluster, seq_len)
    return {"seq_len": seq_len, "global_batch": global_batch, "micro_batches": max(1, global_batch // unit)}


def _check_read(
    topic: Topic, given: Mapping[str, str], model: Model | None, cluster: Cluster | None, layout: Layout | None
) -> None:
    for name in given:
        if name not in topic.options:
            raise RequestError(f"explain {topic.name} does not read {flag(name)}.", [flag(o) for o in topic.options])
    answers = (
        (model, "--model", BY_MODEL),
        (cluster, "--cluster", BY_CLUSTER),
        (layout, "--layout", ("ranks", *BY_LAYOUT)),
    )
    for noun, written, answered in answers:
        clash = [name for name in given if name in answered]
        if noun is not None and clash:
            raise RequestError(f"{written} and {flag(clash[0])} say the same thing: leave one out.")
    if layout is None and model is not None and not set(topic.options) & set(BY_MODEL):
        raise RequestError(f"explain {topic.name} reads --model only beside --layout.")
    if layout is None and cluster is not None and not set(topic.options) & {"ranks", *BY_CLUSTER}:
        raise RequestError(f"explain {topic.name} reads --cluster only beside --layout.")


def _usual_cluster(devices: int) -> Cluster:
    """So many usual devices in nodes as large as they fill."""
    per_node = devices if devices <= 8 else math.gcd(devices, 8)
    return parse_cluster(f"{devices // per_node}x{per_node}x{DEVICE}")


def _default_model() -> Model:
    from meshwright.spec.model_config import load_model

    return load_model("llama-2-7b")


def _from_nouns(topic: Topic, model: Model | None, cluster: Cluster | None, layout: Layout | None) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if model is not None:
        values |= {"layers": model.layers, "hidden": model.hidden, "heads": model.heads}
        values["parameters"] = float(parameters(model).total) if layout is None else held_parameters(model, layout)
        if "experts" in topic.options:
            values |= _experts(model)
    if cluster is not None and layout is None:
        values["ranks"] = cluster.devices if topic.axis in ("data", "devices") else cluster.devices_per_node
    if cluster is not None:
        values["per_node"] = cluster.devices_per_node
    if layout is not None:
        values["ranks"] = getattr(layout, topic.axis) if topic.name != "hsdp" else layout.data
        values |= {name: getattr(layout, attribute) for name, attribute in BY_LAYOUT.items()}
        if "servers" in topic.options and layout.servers == 0:
            raise RequestError(f"The layout {layout} has no parameter servers.", (f"ps{max(layout.data, 2)}x1",))
    return values


def _experts(model: Model) -> dict[str, int]:
    if model.experts is None:
        raise RequestError(f"{model.name} has no experts.", ("mixtral-8x7b", "deepseek-v3"))
    return {"experts": model.experts.count, "per_token": model.experts.per_token}


def held_parameters(model: Model, layout: Layout) -> float:
    """Parameters on a device of the first pipeline rank before data ranks shard them, as `cost.step` counts them."""
    columns = columns_of(layout)
    first, last = edge_share(model, columns)
    edges = first + (last if layout.pipeline == 1 else 0.0)
    return float(layer_share(model, columns).total * balanced_layers(model, columns).first + edges)


def _made_model(topic: Topic, values: Mapping[str, Any]) -> Model:
    """A plain Transformer (4h wide, as many key as query heads) of these numbers."""
    hidden, heads = values["hidden"], values["heads"]
    if "heads" not in topic.options:
        heads = math.gcd(hidden, heads)
    if hidden % heads:
        near = sorted((d for d in range(1, hidden + 1) if hidden % d == 0), key=lambda d: abs(d - heads))
        raise RequestError(f"--heads {heads} do not divide --hidden {hidden}.", [str(d) for d in near[:3]])
    experts = Experts(values["experts"], values["per_token"], hidden) if "experts" in topic.options else None
    if experts is not None and experts.per_token > experts.count:
        raise RequestError(
            f"A token cannot visit {experts.per_token} of {experts.count} experts.", (f"--per-token {experts.count}",)
        )
    return Model(
        name="your numbers",
        layers=values["layers"],
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        ffn_hidden=4 * hidden,
        vocab=VOCABULARY,
        max_positions=values["seq_len"],
        gated_mlp=False,
        norm="layernorm",
        experts=experts,
    )


def _made_cluster(topic: Topic, values: Mapping[str, Any]) -> Cluster:
    """Ranks on links of the given bandwidth, all of it reached; without one, usual nodes of DEVICE."""
    usual = parse_cluster(f"8x{DEVICE}")
    if "bandwidth" not in topic.options:
        ranks = values["ranks"]
        return replace(usual, nodes=math.ceil(ranks / 8), devices_per_node=min(ranks, 8))
    whole = replace(usual.device, efficiency=replace(usual.device.efficiency, link=1.0, network=1.0))
    far = Link("your link", values["bandwidth"], values["latency"])
    if "node_bandwidth" not in topic.options:
        return replace(
            usual, name="your link", device=whole, nodes=1, devices_per_node=FLAT_DEVICES,
            nics_per_node=FLAT_DEVICES, intra=far, inter=far, host_link=far,
        )  # fmt: skip
    per_node = values["per_node"]
    near = Link("your node's link", values["node_bandwidth"], values["latency"])
    return replace(
        usual, name="your links", device=whole, nodes=math.ceil(values["ranks"] / per_node),
        devices_per_node=per_node, nics_per_node=per_node, intra=near, inter=far,
    )  # fmt: skip
