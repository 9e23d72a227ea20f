"""ZeRO-1, ZeRO-2, ZeRO-3 / FSDP and hybrid sharding, all on FSDP2 (ZeRO: arXiv:1910.02054; FSDP: arXiv:2304.11277).

Split: stage 1 optimizer states, stage 2 gradients too, stage 3 parameters too, over `shard` (shard × context) ranks;
with replicas (HSDP) shards are summed over `replicate` as well. P parameters of b bytes, n ranks:

| stage | sent a step | how FSDP2 is set |
| --- | --- | --- |
| 1 | reduce-scatter and all-gather, (n-1)/n·P·b each: DDP's bytes | gathers once, reduces after the last micro-batch |
| 2 | the same with one micro-batch; a reduce-scatter each micro-batch | gathers once, reduces every micro-batch |
| 3 | each micro-batch: two all-gathers and a reduce-scatter: half as much again | gives parameters back after use |

In a pipeline every stage gathers once a step and reduces once, after its last micro-batch: stages 2 and 3 keep
parameters gathered, and gradients whole, from the first micro-batch to the last.
HSDP adds an all-reduce of P/n·b over the replicas, once a step. Keeps: (n-1)/n of what it splits.
Use stage 1 or 2 when optimizer states are what does not fit, 3 when parameters do not either; hybrid when the network
between nodes is slow. Offload keeps the shards and the optimizer step on the host.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard

from meshwright.modes.accelerator import on_accelerator, stands_in
from meshwright.modes.late_sums import LateSums
from meshwright.modes.mesh import Mesh
from meshwright.modes.options import Options


def shard(
    module: nn.Module, mesh: Mesh, options: Options, blocks: list[nn.Module], experts: list[nn.Module]
) -> nn.Module:
    """Shard `module` in place: each of `experts` among the ranks that hold the same ones, each block, then the rest.

    Blocks are gathered whole when they run; the rest (embedding, norm, head) stays gathered from forward to backward.
    Parameters that are elsewhere are moved to the device unit by unit; of those on the meta device the shards alone
    are given memory, with zeros in it.
    """
    layout = mesh.layout
    # In a pipeline a stage runs many times a step: gathered anew each time, parameters would cost more than they save.
    stage3 = layout.zero_stage == 3 and layout.stages == 1
    # On a CPU the parameters are where they would be moved to.
    moved = "parameters" in layout.offload and on_accelerator(mesh.device)
    policy: OffloadPolicy = CPUOffloadPolicy(pin_memory=not stands_in()) if moved else OffloadPolicy()
    precision = MixedPrecisionPolicy(param_dtype=options.dtype, reduce_dtype=options.reduce_dtype)

    def apply(target: nn.Module, plane: DeviceMesh, reshard: bool) -> None:
        fully_shard(
            target,
            mesh=plane,
            reshard_after_forward=reshard,
            mp_policy=precision,
            offload_policy=policy,
            shard_placement_fn=lambda parameter: placement_of(parameter, plane.size(plane.ndim - 1)),
        )

    for one in experts:
        apply(one, _plane(mesh, "expert_replicate", "expert_shard"), stage3)
    for block in blocks:
        apply(block, _plane(mesh, "replicate", "shard"), stage3)
    apply(module, _plane(mesh, "replicate", "shard"), False)
    late = _late_sums(module, mesh, options, bool(experts))
    module.late_sums = late  # type: ignore[assignment]
    _tune(module, options, blocks, mesh.device, late)
    _allocate(module, torch.device("cpu") if moved else mesh.device)
    return module


def _allocate(module: nn.Module, device: torch.device) -> None:
    """Memory for the shards of parameters on the meta device."""
    if any(parameter.is_meta for parameter in module.parameters()):
        module._apply(  # type: ignore[no-untyped-call]
            lambda tensor: torch.zeros_like(tensor, device=device) if tensor.is_meta else tensor
        )


def _plane(mesh: Mesh, outer: str, inner: str) -> DeviceMesh:
    """Hybrid where there are replicas, else the sharding axis alone."""
    return mesh.plane(outer, inner) if mesh.size(outer) > 1 else mesh.axes[inner]


def _late_sums(module: nn.Module, mesh: Mesh, options: Options, experts: bool) -> LateSums | None:
    """Where FSDP2 reads no sum right after it: on no GPU, without replicas to sum over next, and nothing to cast."""
    replicas = mesh.size("replicate") > 1 or (experts and mesh.size("expert_replicate") > 1)
    travels = options.reduce_dtype or options.dtype
    casts = travels is not None and any(parameter.dtype != travels for parameter in module.parameters())
    return None if on_accelerator(mesh.device) or replicas or casts else LateSums(options.rate_limit)


def _tune(
    module: nn.Module, options: Options, blocks: list[nn.Module], device: torch.device, late: LateSums | None
) -> None:
    for state in units(module):
        # Sums, not means: the loss is divided once, by the global number of target tokens. Gloo has no scaled sum.
        state.set_force_sum_reduction_for_comms(True)
        state.set_gradient_divide_factor(1.0)
    assert isinstance(module, FSDPModule)
    if hasattr(module, "set_reduce_scatter_max_input_buffers"):
        module.set_reduce_scatter_max_input_buffers(max(options.rate_limit, 1))
    sharded: list[FSDPModule] = [block for block in blocks if isinstance(block, FSDPModule)]
    if not on_accelerator(device):
        # Without streams a gather is under way beside the blocks before it only where it is told to be, and asked for.
        for unit in units(module):
            unit._set_unshard_async_op(options.prefetch > 0)
            if late is not None:
                unit.set_custom_reduce_scatter(late)
    if options.prefetch == 0:
        for unit in units(module):
            unit.set_modules_to_backward_prefetch([unit])  # there already; with an empty list FSDP2 gathers one ahead
    elif options.prefetch > 1 or not on_accelerator(device):
        module.set_modules_to_forward_prefetch(sharded[: options.prefetch])
        for i, block in enumerate(sharded):
            block.set_modules_to_forward_prefetch(sharded[i + 1 : i + 1 + options.prefetch])
            block.set_modules_to_backward_prefetch(sharded[max(i - options.prefetch, 0) : i][::-1])


def units(module: nn.Module) -> Iterable[FSDPModule]:
    """The modules that FSDP2 gathers as one."""
    return [child for child in module.modules() if isinstance(child, FSDPModule)]


def before_micro_batch(module: nn.Module, zero_stage: int, last: bool, fresh: bool) -> None:
    """Tell FSDP2 of one micro-batch outside of a pipeline. `fresh`: no parameter has a gradient yet."""
    assert isinstance(module, FSDPModule)
    if zero_stage < 3 and module._get_fsdp_state()._is_root:
        # All will be whole until the step ends: every gather is sent off before the first block computes. In the very
        # first step FSDP2 does not know its root yet.
        for unit in units(module):
            unit.unshard(async_op=True)
    if isinstance(module.late_sums, LateSums):
        module.late_sums.late = last and fresh
    module.set_is_last_backward(last)
    module.set_requires_gradient_sync(last or zero_stage >= 2)
    module.set_requires_all_reduce(last)
    module.set_reshard_after_backward(zero_stage == 3)


def after_backward(module: nn.Module) -> None:
    """Gradients are whole afterwards."""
    if isinstance(module.late_sums, LateSums):
        module.late_sums.land()


def give_back(module: nn.Module) -> None:
    """Free the gathered parameters, which are stale once the optimizer has changed the shards."""
    for unit in units(module):
        unit.reshard()


def placement_of(parameter: torch.Tensor, shards: int) -> Shard:
    """The dimension along which a parameter is sharded: 0, but 1 for a stack of experts that are too few for dim 0.

    FSDP2 pads dim 0: of 4 experts over 8 ranks every rank would have room for one, and half of them none in it.
    """
    across = parameter.ndim > 2 and parameter.size(0) % shards != 0 and parameter.size(1) % shards == 0
    return Shard(int(across))


def local_box(parameter: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Offset and shape of a sharded parameter's local tensor in the parameter: equal pieces, the last ones shorter."""
    assert isinstance(parameter, DTensor)
    offset, shape = [0] * parameter.ndim, list(parameter.shape)
    for axis, placement in enumerate(parameter.placements):
        if isinstance(placement, Shard):
            dim, mesh = placement.dim, parameter.device_mesh
            rows = -(-shape[dim] // mesh.size(axis))
            offset[dim] = min(rows * mesh.get_local_rank(axis), shape[dim])
            shape[dim] = min(rows, shape[dim] - offset[dim])
    return tuple(offset), tuple(shape)
