"""The JSON file that nccl-tests writes under `-J` (its src/util.cu, version 2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshwright.diagnose.nccl_tests.report import ReadError, Report, Timed, program_of


def read_json(document: Any, where: str) -> list[Report]:
    """The test, or the tests of a list. Raises ReadError: what is missing."""
    if isinstance(document, list):
        return [report for one in document for report in read_json(one, where)]
    if not isinstance(document, Mapping) or not isinstance(document.get("results"), list):
        raise ReadError(f"{where}: JSON, but not nccl-tests': it has no list `results`.")
    config = document.get("config")
    config = config if isinstance(config, Mapping) else {}
    devices = [one for one in config.get("devices") or [] if isinstance(one, Mapping)]
    bounds = document.get("out_of_bounds")
    arguments = [str(one) for one in document.get("args") or []]
    lines = [_timed(one, f"{where}, results[{at}]") for at, one in enumerate(document["results"])]
    return [
        Report(
            program_of(arguments[0]) if arguments else "",
            tuple(str(one.get("hostname") or "") for one in devices),
            str(devices[0].get("device_info") or "").strip() if devices else "",
            int(config.get("iterations") or 0),
            tuple(lines),
            int(bounds.get("count") or 0) if isinstance(bounds, Mapping) else 0,
        )
    ]


def _timed(one: Any, where: str) -> Timed:
    try:
        halves = [half for half in (one.get("out_of_place"), one.get("in_place")) if half is not None]
        best = min(halves, key=_microseconds)
        wrong = [float(half["nwrong"]) for half in halves if half.get("nwrong") is not None]
        return Timed(
            int(one["size"]),
            _microseconds(best) * 1e-6,
            float(best["alg_bw"]) * 1e9,
            float(best["bus_bw"]) * 1e9,
            max(wrong) if wrong else None,
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ReadError(f"{where}: no result of nccl-tests ({type(error).__name__}: {error}).") from error


def _microseconds(half: Mapping[str, Any]) -> float:
    return float(half["time"] if "time" in half else half["cpu_time"])
