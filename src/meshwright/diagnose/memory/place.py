"""What a program did when memory ran out, told by the frames of its traceback.

Names of functions: torch/optim, torch/autograd, torch/distributed/fsdp (`_full_state_dict`, `summon_full_params`),
transformers/trainer.py, deepspeed/runtime/engine.py (`_zero3_consolidated_16bit_state_dict`), Megatron checkpointing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.diagnose.logs.late import Late
from meshwright.diagnose.logs.line import Line

INNERMOST = 12
"""Lines at the end of a traceback (a frame is two) in which the loss or the head is looked for: outer frames of every
forward name the loss too."""
_FRAME = Late(r'^\s*(?:\[[^\]]{1,40}\]:?\s*)*File "([^"]{1,400})", line \d+, in (\S{1,200})')
_INSTALLED = ("site-packages/", "dist-packages/", "/lib/python", "/torch/", "<frozen", "<string>", "/bin/")
"""Parts of the paths of what is installed and not the user's own."""
_PHASES = {
    "load": Late(
        r"\btorch\.load\(|load_state_dict|load_checkpoint|_load_from_checkpoint|in _?resume\w*|_rebuild_tensor"
    ),
    "save": Late(
        r"(?<!load_)\bstate_dict\(|_full_state_dict|get_(?:model_|optimizer_)?state_dict|full_optim_state|\btorch\.save\(|"
        r"save_checkpoint|save_pretrained|save_model|_save\b|summon_full|_zero3_consolidated|consolidat|"
        r"Failed to clone\(\) tensor|save_16bit_model|_post_state_dict_hook|_pre_state_dict_hook"
    ),
    "optimizer": Late(r"torch/optim/|optimizer\.step\(|_init_group|initialize_optimizer_states|exp_avg"),
    "backward": Late(
        r"\.backward\(|torch/autograd/__init__|torch/autograd/graph|_engine_run_backward|run_backward"
    ),
    "build": Late(
        r"\bfrom_pretrained\(|deepspeed\.initialize\(|\bFSDP\(|FullyShardedDataParallel\(|fully_shard\(|"
        r"(?:model|module|net|self)\.(?:to|cuda)\(|in _apply\b|DistributedDataParallel\(|DDP\(|_flatten_params|"
        r"dispatch_model|load_model|build_model|get_model"
    ),
    "forward": Late(r"in forward\b|self\._?model\(|model\(|in training_step\b|in _call_impl\b|in compute_loss\b"),
}  # fmt: skip
"""In the order in which they decide: a forward in a backward is recomputation, a state dict in a load is a load's."""
_HEAD = Late(
    r"\blm_head\(|cross_entropy|log_softmax|logits\.(?:float|to|view|contiguous|reshape|transpose)|shift_logits|"
    r"shifted_logits|\bloss_fct\(|\bloss_fn\(|\bloss_function\(|embed_out\(|output_layer\(|parallel_lm_logits|"
    r"_logits\b.*=|\blogits\s*[/*=+-]\s*(?!self\.(?:_?model|module)\(|model\()|log_probs?\b|logprobs|LogSoftmax|NllLoss|"
    r"nested_concat|preds_host|all_preds"
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a step."""

    phase: str = ""
    """save, load, optimizer, backward, build, forward; "": the lines do not tell."""
    head: bool = False
    """In the language-model head or the loss."""
    text: str = ""
    """The line that tells it."""


def place_of(lines: Sequence[str]) -> Place:
    """Where a traceback (its lines, the outermost first) ended."""
    frames = [one for one in lines if one.strip()]
    head = next((one for one in reversed(frames[-INNERMOST:]) if _HEAD.search(one)), "")
    for phase, pattern in _PHASES.items():
        if told := next((one for one in reversed(frames) if pattern.search(one)), ""):
            return Place(phase, bool(head), (head or told).strip()[:200])
    return Place("", bool(head), head.strip()[:200])


def own_frames(lines: Sequence[Line]) -> tuple[Line, ...]:
    """The innermost frame of the last traceback that lies in the user's own code, and the line of code after it."""
    start = max((at for at, one in enumerate(lines) if "Traceback (most recent call last)" in one.text), default=0)
    for at in range(len(lines) - 1, start - 1, -1):
        found = _FRAME.match(lines[at].text)
        if found and not any(part in found[1] for part in _INSTALLED):
            code = lines[at + 1 : at + 2]
            return (lines[at], *(one for one in code if not _FRAME.match(one.text)))
    return ()
