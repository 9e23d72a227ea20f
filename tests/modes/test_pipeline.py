"""Pipelines beyond what `check` sees: schedules from files, runs of other lengths, loss without gradients."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

from meshwright.cost.schedules import format_table, table
from meshwright.modes.mesh import make_mesh
from meshwright.modes.options import Options
from meshwright.modes.pipeline import _CLASSES
from meshwright.modes.schedule_file import read_schedule_table
from meshwright.spec.errors import LayoutError
from meshwright.spec.layout import SCHEDULES
from meshwright.spec.notation import parse_layout
from meshwright.train.assemble import assemble
from meshwright.train.batch import IGNORED, Batch
from meshwright.train.launch.pool import RankPool
from meshwright.train.models.build import build_model, load_architecture
from meshwright.train.models.init import init_module
from meshwright.train.step import Step
from tests.modes.toy import Box, boxes, joined

MODELS = Path(__file__).parents[1] / "check" / "models"
LLAMA, TIED = str(MODELS / "nano-llama.json"), str(MODELS / "nano-tied.json")


def micro_batches(count: int, sequences: int = 2) -> list[Batch]:
    generator = torch.Generator().manual_seed(count)
    tokens = torch.randint(0, 67, (count * sequences, 9), generator=generator)
    targets = tokens[:, 1:].clone()
    targets[::3, :5] = IGNORED
    positions = torch.arange(8).expand(count * sequences, -1)
    rows = [slice(i * sequences, (i + 1) * sequences) for i in range(count)]
    return [Batch(tokens[r, :-1], targets[r], positions[r]) for r in rows]


def target_tokens(batches: list[Batch]) -> int:
    return sum(batch.target_tokens for batch in batches)


def plain(model: str, batches: list[Batch]) -> tuple[float, dict[str, torch.Tensor]]:
    """Loss and gradients in one process."""
    whole = build_model(model, device="cpu", dtype=torch.float64)
    init_module(whole, 0)
    total = torch.zeros((), dtype=torch.float64)
    for batch in batches:
        logits = whole(batch.tokens, batch.positions)
        total = total + F.cross_entropy(logits, batch.targets.flatten(), ignore_index=IGNORED, reduction="sum")
    loss = total / target_tokens(batches)
    loss.backward()
    return loss.item(), {name: p.grad for name, p in whole.named_parameters() if p.grad is not None}


def make_step(model: str, layout: str, csv: str | None, count: int) -> Step:
    torch.set_default_dtype(torch.float64)
    parsed = parse_layout(layout)
    places = read_schedule_table(csv, parsed, count) if csv else None
    mesh = make_mesh(parsed)
    options = Options(schedule_table=csv)
    return assemble(load_architecture(model), mesh, options, dtype=torch.float64, places=places)


def everyone(share: torch.Tensor, step: Step) -> float:
    total = share.clone() if step.reports else torch.zeros_like(share)
    dist.all_reduce(total)
    return float(total)


def one_step(model: str, layout: str, csv: str | None, count: int) -> tuple[float, list[Box]]:
    step = make_step(model, layout, csv, count)
    batches = micro_batches(count)
    share = step.run(batches, target_tokens=target_tokens(batches))
    return everyone(share, step), boxes(step.parallel.parts)


def test_every_schedule_of_the_notation_is_pytorch_s() -> None:
    assert list(_CLASSES) == list(SCHEDULES)
    for name, kind in _CLASSES.items():
        assert kind.__name__.lower() == f"schedule{name}"


@pytest.mark.parametrize(
    ("model", "layout", "schedule", "virtual_stages"),
    [
        (LLAMA, "pp2:interleaved1f1b:2", "interleaved1f1b", 2),
        (LLAMA, "pp2:loopedbfs:2", "zbvzerobubble", 2),  # a V where the layout's own schedule goes round
        (TIED, "pp2:interleaved1f1b:2", "dualpipev", 2),  # and so both ends of the table are on one rank
        (LLAMA, "pp2:1f1b", "gpipe", 1),
    ],
)
def test_a_schedule_from_a_file_computes_what_one_process_computes(
    ranks: RankPool, tmp_path: Path, model: str, layout: str, schedule: str, virtual_stages: int
) -> None:
    csv = tmp_path / "schedule.csv"
    csv.write_text(format_table(table(schedule, 2, 4, virtual_stages)), encoding="utf-8")
    found = ranks.run(one_step, model, layout, str(csv), 4, world=2)
    loss, gradients = plain(model, micro_batches(4))
    assert found[0][0] == pytest.approx(loss, rel=1e-12)
    whole = joined([rank[1] for rank in found])
    assert whole.keys() == gradients.keys()
    for name, gradient in gradients.items():
        assert torch.allclose(whole[name], gradient, rtol=1e-9, atol=1e-13), name
    layers = [sorted({box.name.split(".")[1] for box in rank[1] if box.name.startswith("layers.")}) for rank in found]
    if schedule == "zbvzerobubble":
        assert layers == [["0", "3"], ["1", "2"]]
    if schedule == "interleaved1f1b":
        assert layers == [["0", "2"], ["1", "3"]]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (format_table(table("1f1b", 4, 4)), "is for 4 pipeline ranks; this run has 2"),
        (format_table(table("interleaved1f1b", 2, 4, 3)), "is for 6 stages; this run has 4"),
        (format_table(table("interleaved1f1b", 2, 8, 2)), "is for 8 micro-batches; this run has 4"),
        ("0F0,0B0\n1F0,XB0\n", "row 2 .rank 1., column 2"),
        ("", "schedule"),
        # Each rank waits for what the other does afterwards.
        (
            format_table(table("interleaved1f1b", 2, 4, 2)).replace("0F0,0F1", "2F0,0F0,0F1", 1).replace(",2F0", "", 1),
            "wait",
        ),
    ],
)
def test_a_file_that_is_no_schedule_of_this_pipeline_is_refused(tmp_path: Path, text: str, told: str) -> None:
    csv = tmp_path / "schedule.csv"
    csv.write_text(text, encoding="utf-8")
    with pytest.raises(LayoutError, match=told):
        read_schedule_table(csv, parse_layout("pp2:interleaved1f1b:2"), 4)


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match="cannot be read"):
        read_schedule_table(tmp_path / "nosuch.csv", parse_layout("pp2:gpipe"), 4)
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(LayoutError, match="cannot be read"):
        read_schedule_table(tmp_path / "binary.csv", parse_layout("pp2:gpipe"), 4)


def evaluated(layout: str, counts: list[int]) -> list[tuple[float, float]]:
    """Loss of a training step and of an evaluation, for one number of micro-batches after another."""
    step = make_step(LLAMA, layout, None, counts[0])
    found = []
    for count in counts:
        batches = micro_batches(count)
        trained = everyone(step.run(batches, target_tokens=target_tokens(batches)), step)
        gradients = [part.gradient.clone() for part in step.parallel.parts if part.gradient is not None]
        mean = everyone(step.evaluate(batches), step) / target_tokens(batches)
        for part, before in zip(step.parallel.parts, gradients, strict=True):
            assert part.gradient is not None
            assert torch.equal(part.gradient, before)  # an evaluation leaves no trace
        found.append((trained, mean))
    return found


@pytest.mark.parametrize("layout", ["pp2:1f1b", "pp2:zbvzerobubble", "pp2:gpipe fsdp2", "tp2", "fsdp2"])
def test_an_evaluation_is_the_loss_without_gradients(ranks: RankPool, layout: str) -> None:
    parsed = parse_layout(layout)
    loss, _ = plain(LLAMA, micro_batches(4))
    for ((trained, mean),) in ranks.run(evaluated, layout, [4], world=parsed.devices):
        # Data ranks see the same sequences here, each counting for all.
        assert trained == pytest.approx(loss * parsed.data, rel=1e-12)
        assert mean == pytest.approx(loss * parsed.data, rel=1e-12)


def test_a_step_may_have_another_number_of_micro_batches_than_the_last(ranks: RankPool) -> None:
    expected = [plain(LLAMA, micro_batches(count))[0] for count in (4, 2, 4)]
    for rank in ranks.run(evaluated, "pp2:gpipe", [4, 2, 4], world=2):
        assert [trained for trained, _ in rank] == pytest.approx(expected, rel=1e-12)
