"""MFU and HFU: FLOPs counted and FLOPs possible."""

from __future__ import annotations

from meshwright.cost.flops import FORMULA, model_flops, recomputed_flops
from meshwright.cost.parameters import matmul_parameters, parameters
from meshwright.plan.explain.inputs import Inputs
from meshwright.plan.explain.page import Page, account, table
from meshwright.spec.errors import RequestError
from meshwright.spec.layout import RECOMPUTE, Layout
from meshwright.spec.units import count, duration, percent
from meshwright.spec.units import flops as rate
from meshwright.spec.workload import make_workload


def page(topic: str, given: Inputs) -> Page:
    """The account of model FLOPs utilisation."""
    device, seconds = given.cluster.device, given.step_time
    precision = "bf16" if "bf16" in device.peak_flops else "fp16"
    work = make_workload(given.seq_len, given.global_batch, precision=precision, causal=given.model.causal)
    needed = model_flops(given.model, work)
    dense = 6.0 * matmul_parameters(given.model) * work.tokens
    possible = device.peak_flops[precision] * given.ranks * seconds
    shares = {}
    for kind in RECOMPUTE:
        done = needed + recomputed_flops(given.model, work, Layout(recompute=kind))
        shares[kind] = done / possible
    mfu = needed / possible
    if mfu > 1:
        raise RequestError(
            f"A step of {duration(seconds)} would be an MFU of {percent(mfu)}, which cannot be: the time, the batch or "
            "the number of devices is not what ran.",
            (f"--step-time of {duration(seconds * mfu)} or more",),
        )
    rows = [(kind, percent(mfu), percent(shares[kind])) for kind in RECOMPUTE]
    return account(
        topic,
        "MFU and HFU",
        what="Model FLOPs utilisation: the FLOPs that the model needs, over what the devices could do in that time. "
        "Hardware FLOPs utilisation also counts what recomputation does again.",
        formula=(
            f"FLOPs of a step = {FORMULA}",
            "MFU = FLOPs of a step / (devices x peak x seconds)",
        ),
        steps=(
            f"N = {count(matmul_parameters(given.model))} parameters in products, of "
            f"{count(parameters(given.model).total)}; {work.tokens:,} tokens a step",
            f"products {dense:.4g} + attention {needed - dense:.4g} = {needed:.4g} FLOPs",
            f"{given.ranks} x {device.name}, {rate(device.peak_flops[precision])} peak in {precision} (dense, not the "
            "sparse figure)",
            f"a step of {duration(seconds)}: MFU {percent(mfu)}, {rate(needed / seconds / given.ranks)} a device",
        ),
        shown=table(("recomputation", ">MFU", ">HFU"), rows),
        use="To compare runs of different models and sizes. 40 to 55 % is usual for large dense models in 16 bit.",
        avoid="Comparing numbers without knowing what they count: some halve attention for the causal mask, some count "
        "recomputation, some use 6 N alone.",
        sources=("Chowdhery et al. 2022, arXiv:2204.02311 appendix B", "Korthikanti et al. 2022, arXiv:2205.05198"),
        numbers={
            "model_flops": needed,
            "peak_flops_per_device": device.peak_flops[precision],
            "devices": given.ranks,
            "step_seconds": seconds,
            "mfu": mfu,
            "hfu": shares,
        },
    )
