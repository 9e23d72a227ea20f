"""TrainConfig: everything that a training run is told, with its defaults. The text under a field is its help."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from meshwright.train.config.legal import Between, Count, OneOf, Positive
from meshwright.train.data.config import DataConfig
from meshwright.train.optim.config import OptimConfig
from meshwright.train.optim.schedule import ScheduleConfig

PRECISIONS = ("fp32", "bf16", "fp16")
BACKENDS = ("auto", "nccl", "gloo")
DEVICES = ("auto", "cuda", "cpu")
LR_SCALINGS = ("none", "linear", "sqrt")
DERIVED = {"data.seq_len": "train.seq_len", "data.seed": "seed"}
"""Fields of sections that are no keys of their own, and the key whose value they take."""


@dataclass(frozen=True, slots=True)
class TrainSection:
    """[train]: how long, on how much at once, in which arithmetic."""

    steps: Positive = 200
    """Optimizer steps in all, those of resumed runs among them."""
    seq_len: Positive = 256
    """Tokens a sequence."""
    global_batch: Positive = 16
    """Sequences a step, over all ranks; micro-batches are the layout's (mbs2)."""
    precision: Annotated[str, OneOf(PRECISIONS)] = "fp32"
    """Number format of matrix products; parameters and optimizer states stay in fp32."""
    compile: bool = False
    """torch.compile each block."""
    deterministic: bool = False
    """Refuse kernels whose sums may differ from run to run."""
    max_norm: Annotated[float, Between(0)] = 1.0
    """Clip gradients to this global norm; 0: no clipping."""
    loss_scale: Annotated[float, Between(1)] = 65536.0
    """First loss scale in fp16; it adapts."""
    lr_scaling: Annotated[str, OneOf(LR_SCALINGS)] = "none"
    """How optimizer.lr, right for lr_batch sequences a step, is scaled to global_batch."""
    lr_batch: Count = 0
    """Sequences a step that optimizer.lr is right for, where lr_scaling is not none."""
    log_every: Positive = 10
    """Steps between progress lines off a terminal; every step is in metrics.jsonl."""
    eval_every: Count = 0
    """Steps between evaluations on held-out data; 0: none."""
    eval_steps: Positive = 8
    """Batches of one evaluation."""


@dataclass(frozen=True, slots=True)
class CheckpointSection:
    """[checkpoint]: what is saved, and where a run starts from."""

    dir: str = ""
    """Folder of the checkpoints; empty: `checkpoints` in the run's folder."""
    every: Count = 100
    """Steps between checkpoints; 0: only at the end and when stopped."""
    keep: Positive = 2
    """Newest checkpoints that are kept."""
    async_: bool = True
    """Write beside the training steps."""
    resume: bool = True
    """Go on from the newest good checkpoint in the folder."""
    load: str = ""
    """Weights to start from: a checkpoint folder, or a Hugging Face safetensors file or folder."""
    export: str = ""
    """Folder for a Hugging Face safetensors checkpoint at the end; empty: none."""


@dataclass(frozen=True, slots=True)
class ParallelSection:
    """[parallel]: tuning of the modes that the layout names."""

    bucket_mb: Annotated[float, Between(0.001, 1e6)] = 25.0
    """DDP: MiB of gradients that one all-reduce carries."""
    static_graph: bool = False
    """DDP: every step uses the same parameters in the same order."""
    find_unused: bool = False
    """DDP: look for parameters that a step did not use (slower)."""
    prefetch: Count = 1
    """FSDP: blocks gathered ahead of the one that computes; 0: none."""
    rate_limit: Positive = 2
    """FSDP: gradient buffers in flight before the next reduce-scatter waits."""
    schedule_csv: str = ""
    """Pipeline: a file with a schedule in PyTorch's CSV format, instead of the layout's schedule."""
    capacity: Annotated[float, Between(0)] | None = None
    """Experts: tokens that an expert takes at most, relative to an even share; not given: the model's (all of them)."""
    aux_coefficient: Annotated[float, Between(0)] | None = None
    """Experts: weight of the load-balancing loss; not given: the model's own."""


@dataclass(frozen=True, slots=True)
class MetricsSection:
    """[metrics]: where the numbers go. metrics.jsonl is always written."""

    tensorboard: bool = True
    """Curves for TensorBoard in the run's folder."""
    wandb: bool = False
    """Send the numbers to Weights & Biases, too (pip install wandb)."""
    mlflow: bool = False
    """Send the numbers to MLflow, too (pip install mlflow)."""
    project: str = "meshwright"
    """Project at Weights & Biases, experiment at MLflow."""
    progress: bool = True
    """Show the progress line."""
    window: Positive = 20
    """Steps over which tokens/s are a median."""


@dataclass(frozen=True, slots=True)
class LaunchSection:
    """[launch]: the processes. Under torchrun and Slurm the ranks are theirs."""

    ranks: Count = 0
    """Local ranks to start; 0: as many as the layout needs."""
    device: Annotated[str, OneOf(DEVICES)] = "auto"
    """What ranks compute on; auto: GPUs where there are some."""
    backend: Annotated[str, OneOf(BACKENDS)] = "auto"
    """Collectives; auto: nccl on GPUs, gloo on CPUs."""
    timeout_s: Annotated[float, Between(1, 1e6)] = 600.0
    """Seconds after which a collective that not every rank joined fails."""
    threads: Count = 0
    """Threads of a rank's CPU operations; 0: one, and with GPUs an equal share of the cores."""


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """A training run. Immutable; a resolved one has no open choices."""

    model: str = "tiny-llama"
    """A preset (`meshwright models` lists the large ones) or the path of a config.json."""
    layout: str = ""
    """How the job is split, as in 'fsdp2 tp2 mbs2'; empty: data parallel over what is here."""
    seed: Annotated[int, Between(0, 2**63 - 1)] = 0
    """Of initial weights, order of the data and dropout."""
    run: str = ""
    """Folder of the run: config.toml, metrics.jsonl, logs, checkpoints; empty: runs/MODEL."""
    cluster: str = ""
    """Cluster to predict memory and time for, as in 8xA100-40GB, or a TOML file; empty: known from the GPUs here."""
    train: TrainSection = field(default_factory=TrainSection)
    data: DataConfig = field(default_factory=lambda: DataConfig(seq_len=TrainSection().seq_len))
    optimizer: OptimConfig = field(default_factory=OptimConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    checkpoint: CheckpointSection = field(default_factory=CheckpointSection)
    parallel: ParallelSection = field(default_factory=ParallelSection)
    metrics: MetricsSection = field(default_factory=MetricsSection)
    launch: LaunchSection = field(default_factory=LaunchSection)
