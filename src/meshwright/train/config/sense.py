"""Options that exclude each other, need each other, or name what is not there."""

from __future__ import annotations

from pathlib import Path

from meshwright.spec.errors import RequestError
from meshwright.spec.layout import Layout
from meshwright.spec.model import Model
from meshwright.train.config.tree import ParallelSection, TrainConfig
from meshwright.train.config.values import ConfigError


def check_sense(config: TrainConfig, model: Model, layout: Layout) -> None:
    """Raises ConfigError for options that would be ignored or fail later."""
    _check_knobs(config, layout)
    _check_learning_rate(config)
    _check_evaluation(config)
    _check_paths(config)
    if not model.causal:
        raise ConfigError(f"{model.name} does not predict the next token: training is for causal models.")
    if model.experts is None and (config.parallel.capacity is not None or config.parallel.aux_coefficient is not None):
        raise ConfigError(f"parallel.capacity and parallel.aux_coefficient are for experts; {model.name} has none.")
    check_services(config)
    check_data(config, model)


def _check_knobs(config: TrainConfig, layout: Layout) -> None:
    """What tunes a mode that the layout does not have would be ignored."""
    parallel, usual = config.parallel, ParallelSection()
    for name, of in (
        ("static_graph", "DDP without a pipeline"),
        ("find_unused", "DDP without a pipeline"),
        ("prefetch", "ZeRO and FSDP"),
        ("rate_limit", "ZeRO and FSDP"),
        ("schedule_csv", "pipelines"),
    ):
        here = {
            "DDP without a pipeline": layout.zero_stage == 0 and layout.stages == 1,
            "ZeRO and FSDP": layout.zero_stage > 0,
            "pipelines": layout.stages > 1,
        }[of]
        if getattr(parallel, name) != getattr(usual, name) and not here:
            raise ConfigError(f"parallel.{name} is for {of}; the layout is {layout}.")
    accumulated = config.train.global_batch > layout.data * layout.micro_batch
    if parallel.static_graph and accumulated:
        raise ConfigError(
            "parallel.static_graph does not go with several micro-batches a step: DDP stops there, or does not sum.",
            (f"mbs{config.train.global_batch // layout.data}", "--parallel.no-static_graph"),
        )


def _check_learning_rate(config: TrainConfig) -> None:
    from meshwright.train.optim.schedule import lr_at

    scaled, batch = config.train.lr_scaling != "none", config.train.lr_batch
    if scaled and not batch:
        raise ConfigError(
            f"train.lr_scaling {config.train.lr_scaling} needs train.lr_batch: the batch of optimizer.lr."
        )
    if batch and not scaled:
        raise ConfigError("train.lr_batch does nothing where train.lr_scaling is none.", ("linear", "sqrt"))
    lr_at(0, config.optimizer.lr, config.schedule, config.train.steps)


def _check_evaluation(config: TrainConfig) -> None:
    if config.train.eval_every and not config.data.validation_share:
        raise ConfigError(
            "train.eval_every needs held-out data, and data.validation_share is 0.", ("--data.validation_share 0.01",)
        )


def _check_paths(config: TrainConfig) -> None:
    for key, path in (
        ("checkpoint.load", config.checkpoint.load),
        ("parallel.schedule_csv", config.parallel.schedule_csv),
    ):
        if path and not Path(path).exists():
            raise ConfigError(f"{key} is {path!r}, and there is no such file or folder.")


def check_data(config: TrainConfig, model: Model) -> None:
    """Raises RequestError: no such file, no such tokenizer, or one with more ids than the model.

    Nothing is tokenized, and torch is not imported: the loop's `open_dataset` reads what this only looks at.
    """
    from meshwright.train.data.sources import find_files
    from meshwright.train.data.store import HEADER, TOKENS, TokenStore
    from meshwright.train.data.tokenizer import check_vocabulary, open_tokenizer

    data = config.data
    if data.sources[0].startswith("synthetic"):
        if data.sources not in (("synthetic",), ("synthetic:chain",)):
            raise ConfigError(f"data.source is {', '.join(data.sources)}.", ("synthetic", "synthetic:chain"))
        return
    first = Path(data.sources[0]).expanduser()
    folder = first.parent if first.name == TOKENS else first
    if first.name == TOKENS or (folder / HEADER).is_file():
        check_vocabulary(TokenStore(folder).header.tokenizer, model.vocab)
        return
    check_vocabulary(open_tokenizer(data.tokenizer, data.end_token), model.vocab)
    find_files(data.sources)


def check_services(config: TrainConfig) -> None:
    """Raises RequestError when something that [metrics] asks for is not installed; imports none of it."""
    from importlib.util import find_spec

    for name in ("tensorboard", "wandb", "mlflow"):
        if getattr(config.metrics, name) and find_spec(name) is None:
            raise missing(name)


def missing(name: str) -> RequestError:
    """The refusal of a service that is asked for and not installed."""
    return RequestError(
        f"--metrics.{name} needs {name}, which is not installed here: pip install {name}, or go without.",
        (f"--metrics.no-{name}",),
    )
