"""The options that describe a job, shared by the verbs that price one, and the nouns they stand for."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from meshwright.cli.options import complete_cluster, complete_model, one_of
from meshwright.spec.errors import RequestError
from meshwright.spec.workload import IMPLEMENTATIONS, OPTIMIZERS, PRECISIONS, STATES

if TYPE_CHECKING:
    from meshwright.spec.cluster import Cluster
    from meshwright.spec.model import Model
    from meshwright.spec.workload import Tuning, Workload

DEFAULT_MODEL, DEFAULT_CLUSTER = "llama-2-7b", "8xA100-40GB"


def _work(metavar: str, help_text: str, *, names: tuple[str, ...] = (), least: int | None = None) -> Any:
    """An option of the help page's panel Work."""
    listed = f"{help_text}: {', '.join(names)}." if names else help_text
    completion = one_of(names) if names else None
    return typer.Option(metavar=metavar, help=listed, autocompletion=completion, min=least, rich_help_panel="Work")


def _network(metavar: str, help_text: str) -> Any:
    """An option of the help page's panel Cluster."""
    return typer.Option(metavar=metavar, help=help_text, rich_help_panel="Cluster")


MODEL = typer.Argument(
    metavar="MODEL",
    help=f"A preset (see `meshwright models`) or the path of a config.json; {DEFAULT_MODEL} if not given.",
    autocompletion=complete_model,
    show_default=False,
)
CLUSTER = typer.Option(
    metavar="CLUSTER",
    help=f"8xA100-40GB, 4x8xH100 or a TOML file (see `meshwright clusters`); {DEFAULT_CLUSTER} if not given.",
    autocompletion=complete_cluster,
    rich_help_panel="Cluster",
)
UNFUSED = typer.Option("--no-fused-attention", help="Attention scores go through memory.", rich_help_panel="Work")


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What a command line says of a job: one field an option; None: not given."""

    model: Annotated[str | None, MODEL] = None
    cluster: Annotated[str | None, CLUSTER] = None
    inter_node: Annotated[str | None, _network("LINK", "Network between nodes: 100Gbps, 4x200Gbps, ib-hdr.")] = None
    intra_node: Annotated[str | None, _network("LINK", "Links inside a node: nvlink3, pcie4, 300GB/s.")] = None
    devices_per_node: Annotated[int | None, _network("N", "Devices joined by the fast links.")] = None
    nics_per_node: Annotated[float | None, _network("N", "NICs of a node.")] = None
    device_memory: Annotated[str | None, _network("SIZE", "Memory of a device: 40GiB.")] = None
    seq_len: Annotated[int | None, _work("N", "Tokens a sequence.", least=1)] = None
    global_batch: Annotated[int | None, _work("N", "Sequences a step, over all ranks.", least=1)] = None
    precision: Annotated[str | None, _work("NAME", "Number format", names=PRECISIONS)] = None
    optimizer: Annotated[str | None, _work("NAME", "Optimizer", names=OPTIMIZERS)] = None
    states: Annotated[
        str | None, _work("NAME", "Copies kept of parameters, gradients and moments (docs/software.md)", names=STATES)
    ] = None
    implementation: Annotated[
        str | None,
        _work("NAME", "Class of software, fused (Megatron-Core) unless said (docs/software.md)", names=IMPLEMENTATIONS),
    ] = None
    no_fused_attention: Annotated[bool, UNFUSED] = False
    lora_rank: Annotated[int | None, _work("N", "Train LoRA adapters of this rank only.", least=1)] = None
    frozen_layers: Annotated[int | None, _work("N", "Freeze the first N layers.", least=1)] = None


@dataclass(frozen=True, slots=True)
class Job:
    """The nouns that the options stand for."""

    model: Model
    cluster: Cluster
    workload: Workload
    notes: tuple[str, ...]
    """What was chosen because nothing was said."""


def takes_job(answer: Callable[..., int]) -> Callable[..., int]:
    """`answer(options, …)` as a function that takes each field of JobOptions by name, which Typer can read."""
    hints = get_type_hints(JobOptions, include_extras=True)
    by_name = inspect.Parameter.KEYWORD_ONLY
    shared = [
        inspect.Parameter(field.name, by_name, default=field.default, annotation=hints[field.name])
        for field in fields(JobOptions)
    ]
    _, *own = inspect.signature(answer, eval_str=True).parameters.values()

    @functools.wraps(answer)
    def spread(**values: Any) -> int:
        options = JobOptions(**{parameter.name: values.pop(parameter.name) for parameter in shared})
        return answer(options, **values)

    parameters = [*shared, *(parameter.replace(kind=by_name) for parameter in own)]
    spread.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    spread.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return spread


def read_job(options: JobOptions) -> Job:
    """The nouns of a command line. Raises RequestError."""
    from meshwright.plan.defaults import choose_global_batch, choose_seq_len
    from meshwright.spec.cluster_text import parse_cluster
    from meshwright.spec.model_config import load_model
    from meshwright.spec.workload import make_workload

    model = load_model(DEFAULT_MODEL if options.model is None else options.model)
    cluster = parse_cluster(
        DEFAULT_CLUSTER if options.cluster is None else options.cluster,
        inter_node=options.inter_node,
        intra_node=options.intra_node,
        devices_per_node=options.devices_per_node,
        nics_per_node=options.nics_per_node,
        device_memory=options.device_memory,
    )
    seq_len = options.seq_len or choose_seq_len(model)
    global_batch = options.global_batch or choose_global_batch(model, cluster, seq_len)
    named = {name: getattr(options, name) for name in ("precision", "optimizer", "states", "implementation")}
    given = {name: value for name, value in named.items() if value is not None}
    workload = make_workload(
        seq_len,
        global_batch,
        causal=model.causal,
        fused_attention=not options.no_fused_attention,
        tuning=_tuning(options),
        **given,
    )
    return Job(model, cluster, workload, _notes(options, workload))


def _tuning(options: JobOptions) -> Tuning:
    from meshwright.spec.workload import Tuning

    if options.lora_rank is not None and options.frozen_layers is not None:
        raise RequestError("LoRA freezes every layer already: give --lora-rank or --frozen-layers, not both.")
    if options.lora_rank is not None:
        return Tuning("lora", lora_rank=options.lora_rank)
    if options.frozen_layers is not None:
        return Tuning("frozen", frozen_layers=options.frozen_layers)
    return Tuning()


def _notes(options: JobOptions, workload: Workload) -> tuple[str, ...]:
    chosen = (
        (options.model, f"no model given: {DEFAULT_MODEL}"),
        (options.cluster, f"no --cluster given: {DEFAULT_CLUSTER}"),
        (options.seq_len, f"no --seq-len given: {workload.seq_len:,} tokens"),
        (options.global_batch, f"no --global-batch given: {workload.global_batch:,} sequences"),
    )
    return tuple(note for given, note in chosen if given is None)
