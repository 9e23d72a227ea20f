"""The nouns: Model, Cluster, Workload, Layout; reading, validation, units. Data only.

Loaded when first asked for: reading a model's numbers needs no numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meshwright.spec.cluster import Cluster, Device, Efficiency, Link
    from meshwright.spec.cluster_read import cluster_from
    from meshwright.spec.cluster_text import parse_cluster
    from meshwright.spec.columns import LayoutColumns, columns_of, stack
    from meshwright.spec.errors import ClusterError, LayoutError, ModelError, RequestError, WorkloadError
    from meshwright.spec.implementation import Implementation, load_implementation
    from meshwright.spec.layout import Layout
    from meshwright.spec.model import Experts, LatentAttention, Model
    from meshwright.spec.model_config import list_models, load_model
    from meshwright.spec.notation import format_layout, parse_layout, parse_layouts
    from meshwright.spec.optimizer import state_bytes
    from meshwright.spec.rules import check_layout, legal_mask, violations
    from meshwright.spec.workload import StateBytes, Tuning, Workload, make_workload, validate_workload

_HOME = {
    "cluster": ("Cluster", "Device", "Efficiency", "Link"),
    "cluster_read": ("cluster_from",),
    "cluster_text": ("parse_cluster",),
    "columns": ("LayoutColumns", "columns_of", "stack"),
    "errors": ("ClusterError", "LayoutError", "ModelError", "RequestError", "WorkloadError"),
    "implementation": ("Implementation", "load_implementation"),
    "layout": ("Layout",),
    "model": ("Experts", "LatentAttention", "Model"),
    "model_config": ("list_models", "load_model"),
    "notation": ("format_layout", "parse_layout", "parse_layouts"),
    "optimizer": ("state_bytes",),
    "rules": ("check_layout", "legal_mask", "violations"),
    "workload": ("StateBytes", "Tuning", "Workload", "make_workload", "validate_workload"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [  # noqa: RUF022  (in the order of the modules)
    "Cluster",
    "Device",
    "Efficiency",
    "Link",
    "cluster_from",
    "parse_cluster",
    "LayoutColumns",
    "columns_of",
    "stack",
    "ClusterError",
    "LayoutError",
    "ModelError",
    "RequestError",
    "WorkloadError",
    "Implementation",
    "load_implementation",
    "Layout",
    "Experts",
    "LatentAttention",
    "Model",
    "list_models",
    "load_model",
    "format_layout",
    "parse_layout",
    "parse_layouts",
    "state_bytes",
    "check_layout",
    "legal_mask",
    "violations",
    "StateBytes",
    "Tuning",
    "Workload",
    "make_workload",
    "validate_workload",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
