"""`meshwright comms`: what this network, and with --compute this device, can do; written as a cluster file."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshwright.cli.comms_options import Options, operations_of, wish_of
from meshwright.cli.options import JsonOption, one_of
from meshwright.cli.screen import print_json, progress_line
from meshwright.spec.workload import IMPLEMENTATIONS

if TYPE_CHECKING:
    from meshwright.bench.comms.result import Machine, TierFit
    from meshwright.bench.comms.session import Wish
    from meshwright.bench.compute.result import Measured
    from meshwright.spec.cluster import Cluster
    from meshwright.spec.collective import Row
    from meshwright.train.config.here import Here

EXAMPLES = (
    "meshwright comms",
    "meshwright comms --ranks 4 --compute --out this-machine.toml",
    "meshwright comms --layout 'tp2 fsdp2' --op all-reduce,all-gather --max-bytes 64MiB",
    "meshwright comms --read all_reduce_perf.log alltoall_perf.log --out cluster.toml",
)
TIERS, DEVICES, BACKENDS = ("intra", "inter"), ("auto", "cuda", "cpu"), ("auto", "nccl", "gloo")


def answer(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE…", help="With --read: output of nccl-tests.", show_default=False),
    ] = None,
    read: Annotated[
        bool, typer.Option("--read", help="Measure nothing: take the FILEs as if they were measured here.")
    ] = False,
    ranks: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Ranks to start here: as many as the layout has, else one a GPU, else two. "
            "Under torchrun or Slurm those that are there.",
        ),
    ] = None,
    layout: Annotated[
        str | None, typer.Option(metavar="LAYOUT", help="Measure its axes, each with all its groups at once.")
    ] = None,
    op: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,…",
            help="Of all-reduce, all-gather, reduce-scatter, all-to-all, broadcast, send/recv; all if not given.",
        ),
    ] = None,
    min_bytes: Annotated[str, typer.Option(metavar="SIZE", help="Smallest message.")] = "8B",
    max_bytes: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Largest message: 1GiB on GPUs, 16MiB on CPUs if not given.")
    ] = None,
    seconds: Annotated[float, typer.Option(metavar="S", min=0.0, help="Time for all messages, about.")] = 60.0,
    iterations: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Of each message, instead of --seconds.")
    ] = None,
    compute: Annotated[
        bool, typer.Option("--compute", help="Measure products, attention, memory and layers of this device, too.")
    ] = False,
    device: Annotated[
        str, typer.Option(metavar="NAME", help="auto, cuda or cpu.", autocompletion=one_of(DEVICES))
    ] = "auto",
    backend: Annotated[
        str, typer.Option(metavar="NAME", help="auto, nccl or gloo.", autocompletion=one_of(BACKENDS))
    ] = "auto",
    device_name: Annotated[
        str | None, typer.Option(metavar="NAME", help="The catalogue's device to write into the file.")
    ] = None,
    implementation: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="With --compute: the class of software that constants are fitted for; host on CPUs, else eager.",
            autocompletion=one_of(IMPLEMENTATIONS),
        ),
    ] = "",
    tier: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="With --read: intra or inter, if a FILE does not say.", autocompletion=one_of(TIERS)
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="Write a cluster for `plan --cluster FILE.toml`.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite FILE.toml.")] = False,
    as_json: JsonOption = False,
) -> int:
    """Measure what the network can do, fit latency and bandwidth, and write them as a cluster.

    Bandwidths are nccl-tests'. Every message's data is checked. With --compute the device is measured as well, by all
    ranks at the same time, so that the file describes a whole cluster: on a CPU, this machine.

    Exit code 1: a collective gave wrong data.
    """  # fmt: skip
    from meshwright.spec.errors import RequestError

    options = Options(
        ranks, layout, op, min_bytes, max_bytes, seconds, iterations, compute, device, backend, device_name,
        implementation, out, force, as_json,
    )  # fmt: skip
    for name, value, legal in (
        ("--device", device, DEVICES),
        ("--backend", backend, BACKENDS),
        ("--tier", tier, TIERS),
        ("--implementation", implementation, IMPLEMENTATIONS),
    ):
        if value and value not in legal:
            raise RequestError(f"{name} is {value!r}.", legal)
    if files and not read:
        raise RequestError(f"Files are read with --read: meshwright comms --read {files[0]}.")
    if read:
        return _read(files or [], tier, options)
    if tier is not None:
        raise RequestError("--tier says what a FILE does not: it goes with --read.")
    return _measure(options)


def _read(files: Sequence[Path], tier: str | None, options: Options) -> int:
    """Rows from files instead of measurements."""
    from meshwright.bench.comms.reading import read_files
    from meshwright.spec.errors import RequestError

    if not files:
        raise RequestError("--read needs the files of nccl-tests' output.")
    if options.compute:
        raise RequestError("--compute measures here; it does not go with --read.")
    _check_out(options)
    operations = operations_of(options.op) if options.op else ()
    if len(operations) > 1:
        raise RequestError("With --read, --op names the one operation of a FILE that does not say.", operations)
    machine, rows, fits = read_files(files, tier, operations[0] if operations else None)
    _tell(options, machine, rows, fits, None)
    return 0


def _measure(options: Options) -> int:
    """Start ranks that run this verb again, or be one of them."""
    from meshwright.train.config.here import look

    here = look(options.device)
    wish = wish_of(options)
    if here.started:
        return _join(options, wish, here)
    _check_out(options)
    ranks = _ranks(options, wish, here)
    return _join(options, wish, here) if ranks == 1 else _start(options, ranks)


def _start(options: Options, ranks: int) -> int:
    """Start the ranks here; their logs stay where one failed, for the message names them."""
    from meshwright.train.launch.environment import LOG_DIR
    from meshwright.train.launch.local import launch_local, python_module

    folder = tempfile.mkdtemp(prefix="meshwright-comms-")
    code = 0
    try:
        command = python_module("meshwright", ["comms", *options.arguments()])
        code = launch_local(command, ranks, Path(folder), environment={LOG_DIR: folder})
    finally:
        if code != 1:
            shutil.rmtree(folder, ignore_errors=True)
    return code


def _join(options: Options, wish: Wish, here: Here) -> int:
    """Be one rank; the first one prints and writes."""
    from meshwright.bench.comms.session import joined, run
    from meshwright.train.launch.environment import LOG_DIR
    from meshwright.train.launch.error_files import record_errors

    place = here.place
    first = place.rank == 0
    if place.launcher == "single":
        guard: AbstractContextManager[None] = nullcontext()
    else:
        unique = Path(tempfile.gettempdir()) / f"meshwright-comms-{place.port}"
        guard = record_errors(place.rank, Path(os.environ.get(LOG_DIR) or unique))
    with guard, joined(place, wish) as device:
        if first and here.started and place.launcher != "local":
            _check_out(options)
        with progress_line("messages measured") as show:
            writes = options.out is not None and not options.compute and not options.device_name
            found = run(place, wish, device, show if first else _silent, writes)
        measured = None
        if options.compute:
            from meshwright.bench.compute.session import measure_compute

            with progress_line("shapes measured") as show:
                measured = measure_compute(
                    place, device, found.machine.device, options.implementation, show if first else _silent
                )
        if first:
            _tell(options, found.machine, found.rows, found.fits, measured)
    return 0


def _silent(done: int, total: int) -> None:
    """Progress of ranks that nobody looks at."""


def _ranks(options: Options, wish: Wish, here: Here) -> int:
    """How many ranks to start. Raises RequestError for one that measures nothing."""
    from meshwright.spec.errors import RequestError

    needed = wish.layout.devices if wish.layout else None
    ranks = options.ranks or needed or (here.gpus if here.gpus > 1 else 2)
    if needed is not None and ranks != needed:
        raise RequestError(
            f"The layout '{wish.layout}' needs {needed} ranks, --ranks is {ranks}.", (f"--ranks {needed}",)
        )
    if ranks == 1 and not options.compute:
        raise RequestError("One rank has nobody to send to.", ("--ranks 2", "--ranks 1 --compute"))
    return ranks


def _check_out(options: Options) -> None:
    if options.out is not None:
        from meshwright.bench.comms.cluster_file import check_free

        check_free(options.out, options.force)


def _tell(
    options: Options,
    machine: Machine,
    rows: Sequence[Row],
    fits: Sequence[TierFit],
    measured: Measured | None,
) -> None:
    """Write the cluster file, then print what was found."""
    from meshwright.bench.comms.document import comms_document
    from meshwright.cli.comms_view import show

    cluster = None
    if options.out is not None:
        cluster = _write(options.out, options, machine, fits, measured)
    if options.json:
        document = comms_document(machine, rows, fits)
        if measured is not None:
            from meshwright.bench.compute.document import compute_document

            document["compute"] = compute_document(measured)
        print_json(document | {"cluster": cluster.name if cluster else None, "file": str(options.out or "") or None})
        return
    show(machine, rows, fits, measured)
    if cluster is not None:
        software = f" --implementation {measured.implementation}" if measured is not None else ""
        print(f"wrote {options.out}: meshwright plan MODEL --cluster {options.out}{software}")


def _write(
    path: Path, options: Options, machine: Machine, fits: Sequence[TierFit], measured: Measured | None
) -> Cluster:
    from meshwright.bench.comms.cluster_file import measured_cluster, toml_text, write

    named = replace(machine, catalogue_name=options.device_name) if options.device_name else machine
    found = (measured.device, measured.host_memory_bytes, measured.meeting_s) if measured else (None, None, 0.0)
    cluster = measured_cluster(named, fits, *found)
    write(path, toml_text(cluster, machine, fits, measured.remarks if measured else ()))
    return cluster
