"""What the recorder sees: every source of collectives, with bytes counted by hand. fp32, 4 ranks unless said."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.parallel import DistributedDataParallel

from meshwright.cost.wire_row import WireRow
from meshwright.modes import comm
from meshwright.modes.mesh import Mesh, make_mesh
from meshwright.modes.record import Entry, Recorder, enable_recent, recent, summarize
from meshwright.spec.notation import parse_layout
from meshwright.train.launch.pool import RankPool

Facts = list[tuple[str, str, int, float]]


def recorded(layout: str, program: Callable[[Mesh], object]) -> Facts:
    """(axis, collective, bytes of the tensor, bytes sent) of each call that `program` makes."""
    mesh = make_mesh(parse_layout(layout))
    with Recorder(mesh) as record:
        program(mesh)
    return [(e.axis, e.collective, e.bytes, e.sent) for e in record.entries]


def plain_calls() -> Facts:
    def program(mesh: Mesh) -> None:
        rank, x = dist.get_rank(), torch.ones(8)  # 32 bytes
        dist.all_reduce(x)
        dist.all_gather_single(torch.zeros(32), x)
        dist.all_gather([torch.zeros(8) for _ in range(4)], x)
        dist.reduce_scatter_single(torch.zeros(2), x)
        dist.all_to_all_single(torch.zeros(8), x)
        dist.broadcast(x, 0)
        dist.reduce(x, 1)
        dist.gather(x, [torch.zeros(8) for _ in range(4)] if rank == 2 else None, 2)
        dist.scatter(torch.zeros(8), [torch.zeros(8) for _ in range(4)] if rank == 3 else None, 3)
        dist.barrier()
        work = dist.all_reduce(x.half(), async_op=True)
        assert work is not None
        work.wait()

    return recorded("tp4", program)


def test_plain_collectives_send_what_the_lower_bounds_say(ranks: RankPool) -> None:
    for rank, facts in enumerate(ranks.run(plain_calls)):
        assert facts == [
            ("world", "all-reduce", 32, 48.0),  # 2 · 3/4 · 32
            ("world", "all-gather", 128, 96.0),  # 3/4 · 128
            ("world", "all-gather", 128, 96.0),
            ("world", "reduce-scatter", 32, 24.0),
            ("world", "all-to-all", 32, 24.0),
            ("world", "broadcast", 32, 32.0 if rank == 0 else 0.0),
            ("world", "reduce", 32, 0.0 if rank == 1 else 32.0),
            ("world", "gather", 128, 0.0 if rank == 2 else 32.0),
            ("world", "scatter", 128, 96.0 if rank == 3 else 0.0),
            ("world", "barrier", 0, 0.0),
            ("world", "all-reduce", 16, 24.0),
        ]


def uneven_all_to_all() -> Facts:
    def program(mesh: Mesh) -> None:
        mine = [[3, 1], [4, 2]][dist.get_rank()]  # rows to rank 0 and 1
        theirs = [[3, 4], [1, 2]][dist.get_rank()]
        dist.all_to_all_single(torch.zeros(sum(theirs), 5), torch.ones(sum(mine), 5), theirs, mine)
        dist.all_to_all_single(torch.zeros(0, 5), torch.ones(0, 5), [0, 0], [0, 0])

    return recorded("ddp2 ep2", program)


def test_an_all_to_all_sends_the_rows_for_others(ranks: RankPool) -> None:
    first, second = ranks.run(uneven_all_to_all, world=2)
    assert first == [("world", "all-to-all", 80, 20.0), ("world", "all-to-all", 0, 0.0)]
    assert second == [("world", "all-to-all", 120, 80.0), ("world", "all-to-all", 0, 0.0)]


def data_parallel(hook: bool) -> Facts:
    def program(mesh: Mesh) -> None:
        group = mesh.group("data")
        model = DistributedDataParallel(nn.Linear(8, 4), process_group=group, init_sync=False)
        if hook:
            model.register_comm_hook(group, lambda state, bucket: _summed(state, bucket))
        model(torch.randn(3, 8)).sum().backward()

    return [fact for fact in recorded("ddp2", program) if fact[1] == "all-reduce"]


def _summed(group: dist.ProcessGroup, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    work = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
    assert work is not None
    return work.get_future().then(lambda done: done.value()[0])


@pytest.mark.parametrize("hook", [False, True])
def test_ddp_s_own_reducer_and_hooks_are_seen(ranks: RankPool, hook: bool) -> None:
    for facts in ranks.run(data_parallel, hook, world=2):
        assert facts == [("data", "all-reduce", 4 * 36, 144.0)]  # 8 · 4 + 4 parameters, 2 · 1/2


def fully_sharded() -> list[WireRow]:
    mesh = make_mesh(parse_layout("fsdp2"))
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 3))
    for layer in model:
        fully_shard(layer, mesh=mesh.axes["shard"], reshard_after_forward=True)
    fully_shard(model, mesh=mesh.axes["shard"])
    with Recorder(mesh) as record:
        model(torch.randn(5, 8)).sum().backward()
    return summarize(record.entries)


def test_fsdp2_is_seen_with_its_padding(ranks: RankPool) -> None:
    # 72 parameters; and 3 · 8 + 3, whose 3 rows are padded to 4: 36. Each unit's half, twice gathered, once scattered.
    for rows in ranks.run(fully_sharded, world=2):
        assert rows == [
            WireRow("shard", "all-gather", 4, 2 * (72 + 36) / 2 * 4, small=True),
            WireRow("shard", "reduce-scatter", 2, (72 + 36) / 2 * 4, small=True),
        ]


def functional_collectives(compiled: bool) -> Facts:
    def program(mesh: Mesh) -> None:
        group = mesh.group("tensor")

        def calls(x: torch.Tensor) -> torch.Tensor:
            gathered = functional.all_gather_tensor(x, 0, group)
            return functional.reduce_scatter_tensor(functional.all_reduce(gathered, "sum", group), "sum", 0, group) + 1

        run = torch.compile(calls, backend="aot_eager") if compiled else calls
        run(torch.ones(6)).sum().item()

    return recorded("tp2", program)


@pytest.mark.parametrize("compiled", [False, True])
def test_functional_collectives_are_seen_once(ranks: RankPool, compiled: bool) -> None:
    for facts in ranks.run(functional_collectives, compiled, world=2):
        assert facts == [
            ("tensor", "all-gather", 48, 24.0),
            ("tensor", "all-reduce", 48, 48.0),
            ("tensor", "reduce-scatter", 48, 24.0),
        ]


def pipelined() -> list[WireRow]:
    mesh = make_mesh(parse_layout("pp2:1f1b"))
    rank = dist.get_rank()
    like = torch.empty(2, 64, device="meta", requires_grad=True)
    stage = PipelineStage(
        nn.Linear(64, 64), rank, 2, torch.device("cpu"), input_args=like, output_args=like,
        group=mesh.group("pipeline"),
    )  # fmt: skip
    schedule = Schedule1F1B(stage, 4, loss_fn=lambda out, target: out.sum())

    def step() -> None:
        schedule.step(*([torch.randn(8, 64)] if rank == 0 else []), target=torch.zeros(8, 64))

    step()  # the first step also asks the neighbours for their shapes
    with Recorder(mesh) as record:
        step()
    return summarize(record.entries)


def test_a_pipeline_schedule_sends_one_message_a_micro_batch(ranks: RankPool) -> None:
    for rows in ranks.run(pipelined, world=2):  # activations one way, gradients the other: 4 · [2, 64]
        assert rows == [WireRow("pipeline", "send", 4, 4.0 * 512, small=True)]


def own_backward(thread: bool) -> Facts:
    def program(mesh: Mesh) -> None:
        group = mesh.group("tensor")
        x = torch.ones(3, 2, requires_grad=True)
        loss = comm.copy(comm.gather(x, group), group).sum()
        if thread:  # as autograd runs backward of CUDA tensors
            worker = threading.Thread(target=loss.backward)
            worker.start()
            worker.join()
        else:
            loss.backward()

    return recorded("tp2", program)


@pytest.mark.parametrize("thread", [False, True])
def test_collectives_of_backward_are_seen_on_any_thread(ranks: RankPool, thread: bool) -> None:
    for facts in ranks.run(own_backward, thread, world=2):
        assert facts == [
            ("tensor", "all-gather", 48, 24.0),
            ("tensor", "all-reduce", 48, 48.0),
            ("tensor", "reduce-scatter", 48, 24.0),
        ]


def axes_of_a_hybrid() -> list[str]:
    mesh = make_mesh(parse_layout("hsdp2x2"))
    named = []
    for axis in ("shard", "replicate", "data"):
        with Recorder(mesh) as record:
            dist.all_reduce(torch.ones(1), group=mesh.group(axis))
        named.append(record.entries[0].axis)
    pair = dist.new_group([0, 1])  # another group with the ranks of one shard group
    with Recorder(mesh) as record:
        if dist.get_rank() < 2:
            dist.all_reduce(torch.ones(1), group=pair)
    return named + [e.axis for e in record.entries]


def test_axes_are_told_by_their_groups_then_by_their_ranks(ranks: RankPool) -> None:
    for rank, named in enumerate(ranks.run(axes_of_a_hybrid)):
        assert named == ["shard", "replicate", "data", *(["shard"] if rank < 2 else [])]


def ends_of_a_pipeline() -> list[str]:
    mesh = make_mesh(parse_layout("pp4"))
    ends = dist.new_group([0, 3])
    with Recorder(mesh) as record:
        if dist.get_rank() in (0, 3):
            dist.all_reduce(torch.ones(1), group=ends)
        dist.all_reduce(torch.ones(1))
    return [e.axis for e in record.entries]


def test_a_group_inside_an_axis_has_the_axis_name(ranks: RankPool) -> None:
    named = ranks.run(ends_of_a_pipeline)
    assert named[0] == named[3] == ["pipeline", "world"]
    assert named[1] == ["world"]


def world_beside_axes() -> list[str]:
    mesh = make_mesh(parse_layout("ddp2 tp2"))
    with Recorder(mesh) as inner, Recorder() as outer:
        dist.all_reduce(torch.ones(1))
        dist.all_reduce(torch.ones(1), group=mesh.group("tensor"))
    return [e.axis for e in (*inner.entries, *outer.entries)]


def test_the_default_group_is_the_world(ranks: RankPool) -> None:
    for named in ranks.run(world_beside_axes):  # with the mesh and without, by the groups' descriptions
        assert named == ["world", "tensor"] * 2


def before_and_after() -> tuple[int, int, list[Entry], list[Entry]]:
    x = torch.ones(4)
    dist.all_reduce(x)
    with Recorder() as record:
        dist.all_reduce(x)
    during = len(record.entries)
    dist.all_reduce(x)
    nothing = recent()
    enable_recent(2)
    for size in (1, 2, 3):
        dist.all_reduce(torch.ones(size))
    kept = recent()
    enable_recent(0)
    dist.all_reduce(x)
    return during, len(record.entries), nothing + recent(), kept


def test_nothing_is_noted_outside_and_the_last_calls_are_kept_when_asked(ranks: RankPool) -> None:
    for during, after, nothing, kept in ranks.run(before_and_after, world=2):
        assert (during, after, nothing) == (1, 1, [])
        assert [e.bytes for e in kept] == [8, 12]
        assert all(e.site.rpartition(":")[0].endswith("test_record.py") for e in kept)
        assert "all-reduce over world (2 ranks), 12 bytes" in str(kept[-1])
