"""Routing as configurations describe it."""

from __future__ import annotations

from meshwright.spec.config_reader import ConfigReader
from meshwright.spec.model import Model
from meshwright.train.models.architecture import Routing
from meshwright.train.models.read_rope import number

CORRECTION = (
    "e_score_correction_bias keeps its value: the update that balances the load (arXiv:2408.15664) is not done; "
    "a balance loss is where aux_loss_alpha or parallel.aux_coefficient sets one"
)
METHODS = {"deepseek_v2": ("greedy", "group_limited_greedy"), "deepseek_v3": ("noaux_tc",)}
"""Of `topk_method`, by family."""
SCORES = {"deepseek_v2": "softmax", "deepseek_v3": "sigmoid"}


def read_routing(reader: ConfigReader, model: Model) -> Routing:
    """How a model's mixtures choose: as `transformers` does for its family. Raises ModelError."""
    family, e = model.family, model.experts
    if family not in METHODS or e is None:
        return Routing()
    method = reader.text("topk_method") or METHODS[family][0]
    if method not in METHODS[family]:
        raise reader.error("topk_method", method, " or ".join(METHODS[family]))
    scores = reader.text("scoring_func") or SCORES[family]
    if scores != SCORES[family]:
        raise reader.error("scoring_func", scores, SCORES[family])
    newest = family == "deepseek_v3"
    groups, kept = 1, 1
    if method != "greedy":
        groups = reader.integer("n_group", default=8 if newest else 1)
        kept = reader.integer("topk_group", default=4 if newest else 1)
    best = 2 if newest else 1
    if e.count % groups or (groups > 1 and e.count // groups < best):
        raise reader.error("n_group", groups, f"a divisor of {e.count} experts that leaves {best} a group")
    if kept > groups or kept * (e.count // groups) < e.per_token:
        raise reader.error("topk_group", kept, f"groups that hold {e.per_token} experts, {groups} at most")
    scale = number(reader, 2.5 if newest else 1.0, "routed_scaling_factor")
    return Routing(scores, newest, groups, kept, best, scale)


def renormalise(reader: ConfigReader, model: Model) -> bool:
    """Whether the weights of a token's experts are scaled to sum to 1. Raises ModelError."""
    found = reader.boolean("norm_topk_prob", model.family in ("mixtral", "deepseek_v3"))
    if model.family == "deepseek_v2" and found:
        raise reader.error("norm_topk_prob", True, "false")
    return found or model.family == "mixtral"


def balance_coefficient(reader: ConfigReader, model: Model) -> float:
    """Of the load-balancing loss: DeepSeek's `aux_loss_alpha`, none where it is absent; of others
    `router_aux_loss_coef`."""
    if not model.moe_layers:
        return 0.0
    if model.family in METHODS:
        return number(reader, 0.0, "aux_loss_alpha")
    return number(reader, 0.001, "router_aux_loss_coef")
