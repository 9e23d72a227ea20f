"""Named numbers in a line, whoever printed it: torchtitan, Megatron-LM, nanotron, Hugging Face, DeepSpeed, ours.

One grammar reads all: a name, a separator (`:`, `=`, or a space), a number, perhaps a unit. `WORDS` gives names their
meaning: torchtitan components/metrics.py, Megatron-LM training/training.py, nanotron logging, transformers Trainer,
DeepSpeed runtime/engine.py and utils/timer.py, fairseq logging/progress_bar.py.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache

WORDS = {
    "step": "step iteration iter global_step num_updates it update",
    "total": "total_steps max_steps",
    "epoch": "epoch",
    "rank": "rank global_rank",
    "loss": "loss lm_loss train_loss training_loss reduced_train_loss loss_train ce_loss nll_loss",
    "eval_loss": "eval_loss val_loss valid_loss validation_loss",
    "aux_loss": "aux_loss load_balancing_loss load_balance_loss moe_aux_loss balance_loss router_aux_loss",
    "grad_norm": "grad_norm gradient_norm gnorm grad global_grad_norm total_norm",
    "lr": "lr learning_rate",
    "loss_scale": "loss_scale scale",
    "seconds": "step_time step_seconds seconds iteration_time time_per_step seconds_per_step "
        "elapsed_time_per_iteration "
    "end_to_end_s time_metrics_end_to_end_s total_step_time iter_time train_step_timing_in_s train_step_time "
    "step_time_s seconds_per_iteration s_it",
    "milliseconds": "elapsed_time_per_iteration_ms step_time_ms iteration_time_ms iter_time_ms step_ms ms_step",
    "tokens_per_second": "tps tokens_per_sec tokens_per_second tok_s tgs tokens_s wps throughput_tokens",
    "tokens_per_gpu": "tokens_per_sec_per_gpu",
    "samples_per_second": "samplespersec samples_per_sec samples_per_second currsamplespersec train_samples_per_second",
    "memory_gib": "memory max_memory memory_gib mem gpu_memory max_mem memallocated max_memallocated",
    "mfu": "mfu training_model_floating_point_utilization model_flops_utilization floating_point_utilization",
    "tflops": "tflops throughput_per_gpu_tflop_s_gpu model_tflops_per_gpu tflops_per_gpu hardware_tflops_per_gpu "
    "tflop_s_gpu throughput_per_gpu",
    "skipped": "skipped",
    "skipped_here": "number_of_skipped_iterations skipped_iterations",
    "nans": "number_of_nan_iterations nan_iterations",
    "global_batch": "global_batch_size",
    "data_seconds": "data_time data_loading_time data_time_s time_data data_wait data_load_time "
    "data_loading_s time_metrics_data_loading_s",
    "data_share": "data_loading data_loading_share time_metrics_data_loading",
    "data_milliseconds": "data_time_ms batch_generator",
    "tokens": "tokens num_tokens target_tokens",
}  # fmt: skip
NAME = {word: name for name, words in WORDS.items() for word in words.split()}
_NUMBER = r"[+-]?(?:\d[\d_,]*\.?\d*(?:[eE][+-]?\d{1,4})?|\.\d+(?:[eE][+-]?\d{1,4})?|nan|inf(?:inity)?)"
_PAIR = re.compile(
    r"(?<![A-Za-z0-9_])(?P<name>[A-Za-z]\w{0,60}+(?:[ /.-][A-Za-z]\w{0,60}+){0,6})"
    r"(?P<between>\s*+(?:\((?P<unit>[^()]{1,20})\))?[\"']?\s*+(?:[:=]\s*+[\"']?\[?\s*+|(?<=\s))(?:tensor\()?)"
    rf"(?P<value>{_NUMBER})[\"'\]]?\s?"
    r"(?P<after>/\s*\d[\d,]*|%|[KMGTB]i?B?\b|ms\b|s\b)?",
    re.IGNORECASE,
)
LARGEST_FRACTION = 2.0
"""An MFU above it is in percent, though no sign says so (nanochat prints `mfu: 48.09`)."""
_SHARE = re.compile(r"\d\s*[KMGT]i?B\s*\((\d{1,3}(?:\.\d+)?)%\)")
_SPACED = (
    "step", "iteration", "iter", "epoch", "rank", "loss", "train loss", "val loss", "eval loss", "grad norm", "memory",
    "lr", "mfu", "step time", "iter time", "iteration time", "data time", "data loading time", "data loading",
)  # fmt: skip
"""Names that may be followed by a number without a separator; so may a single word with an underscore."""
_BETWEEN, _NO_WORD = re.compile(r"[ /.-]+"), re.compile(r"\W+")
_SCALE = {"k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9, "t": 1e12}
_GIB = {"kib": 2**-20, "mib": 2**-10, "gib": 1.0, "tib": 2**10, "kb": 1e3 / 2**30, "mb": 1e6 / 2**30, "gb": 1e9 / 2**30}
LONGEST = 32


def numbers(text: str) -> dict[str, float]:
    """The quantities of `WORDS` in a line, the first of each. Times are seconds, memory GiB, shares 0 to 1."""
    found: dict[str, float] = {}
    for words, between, unit, digits, after in _PAIR.findall(text):
        name = _meaning(words, unit, ":" in between or "=" in between)
        if name and (value := number(digits)) is not None:
            _put(found, name, value, after, unit)
    if "%)" in text and (share := _SHARE.search(text)):
        found.setdefault("memory_share", float(share[1]) / 100)
    return found


def number(text: str) -> float | None:
    """A number as programs print it; None: it is longer than any that is one."""
    if len(text) > LONGEST:
        return None
    try:
        return float(text.replace(",", "") if "," in text else text)
    except ValueError:
        return None


@lru_cache(maxsize=4096)  # a log says the same names in every line
def _meaning(words: str, unit: str, separated: bool) -> str:
    """The longest tail of the words that is a name: `INFO root step` is `step`."""
    parts = _BETWEEN.split(words.lower())
    if unit:
        parts += _NO_WORD.split(unit.lower().strip())
    parts = [part for part in parts if part]
    for start in range(len(parts)):
        tail = "_".join(parts[start:])
        if name := NAME.get(tail):
            # `train loss`, `moe loss scale`: words before are fine, but `val loss` is its own name and was tried first.
            foreign = start and parts[start - 1] in ("no", "the", "per", "dummy", "mtp", "aux", "reward", "kl", "of")
            named = separated or tail.replace("_", " ") in _SPACED or "_" in parts[-1]
            return name if named and not foreign else ""
    return _meaning(words, "", separated) if unit else ""


def _put(found: dict[str, float], name: str, value: float, after: str, unit: str) -> None:
    after = after.strip().lower()
    if name == "step" and after.startswith("/"):
        found.setdefault("total", number(after[1:].strip()) or math.nan)
    elif name == "memory_gib":
        value *= _GIB.get(after or unit.lower(), math.nan)
    elif name in ("milliseconds", "data_milliseconds"):
        name, value = name.replace("milliseconds", "seconds"), value * _SCALE.get(after, 1.0) / 1000
    elif name in ("seconds", "data_seconds") and "ms" in (after, unit.strip().lower()):
        value /= 1000
    elif after == "%" or (name == "data_share" and unit.strip() == "%") or (name == "mfu" and value > LARGEST_FRACTION):
        value /= 100
    elif after[:1] in _SCALE and after not in ("gb", "mb"):
        value *= _SCALE[after[0]]
    found.setdefault(name, value)
