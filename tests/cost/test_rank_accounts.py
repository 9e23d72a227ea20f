"""What each pipeline rank holds and does: where layers, embedding and head lie, and what learns there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meshwright.cost.estimate import estimate
from meshwright.cost.memory import Peak, peak_memory
from meshwright.cost.parameters import parameters
from meshwright.cost.rank_layers import balanced_layers, learned_layers, rank_layers
from meshwright.cost.result import DOES_NOT_FIT, Estimate
from meshwright.spec.cluster import Cluster, Device, Link
from meshwright.spec.columns import columns_of, stack
from meshwright.spec.implementation import load_implementation
from meshwright.spec.layout import SCHEDULES, V_SCHEDULES, Layout
from meshwright.spec.model import Experts, LatentAttention, Model
from meshwright.spec.notation import parse_layout
from meshwright.spec.workload import Tuning, Workload, make_workload

MODEL = Model("m", 30, 2048, 16, 8, 128, 5632, 32000, 4096)
MIXTURE = replace(MODEL, name="mixture", experts=Experts(8, 2, 1024))
LATENT = LatentAttention(q_lora_rank=512, kv_lora_rank=256, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128)
DEVICE = Device("D", 80 * 2.0**30, 2e12, {"bf16": 300e12})
FAST, SLOW = Link("fast", 300e9, 3e-6), Link("slow", 25e9, 10e-6)


def nodes(devices: int, **more: float) -> Cluster:
    each = min(devices, 8)
    return Cluster(f"{devices}xD", DEVICE, devices // each, each, FAST, SLOW, each, **more)  # type: ignore[arg-type]


def work(batch: int = 32, **options: object) -> Workload:
    return make_workload(1024, batch, **options)  # type: ignore[arg-type]


def peak(layout: Layout, model: Model = MODEL, workload: Workload | None = None) -> Peak:
    job = workload or work()
    software = load_implementation(job.implementation)
    return peak_memory(model, nodes(layout.devices), job, columns_of(layout), software)


def priced(text: str, model: Model = MODEL, workload: Workload | None = None, **cluster: float) -> Estimate:
    layout = parse_layout(text)
    return estimate(model, nodes(layout.devices, **cluster), workload or work(), layout)


def sent(found: Estimate, axis: str, collective: str) -> tuple[float, float]:
    """Collectives and bytes."""
    rows = [row for row in found.traffic if (row.axis, row.collective) == (axis, collective)]
    return sum(row.count for row in rows), sum(row.bytes for row in rows)


@pytest.mark.parametrize("text", ["pp4:1f1b", "pp4:interleaved1f1b:2", "pp4:zbvzerobubble", "pp2:dualpipev"])
def test_16_bit_parameters_of_all_ranks_are_twice_the_models(text: str) -> None:
    """30 layers on 4 ranks are 7 + 8 + 8 + 7, however a rank's are cut into stages; on 2 ranks 15 + 15."""
    layout, job = parse_layout(text), work(states="mixed")
    ranks = peak(layout, workload=job).ranks
    between = float(ranks[1].parameters) if layout.pipeline > 2 else 0.0
    held = float(ranks[0].parameters) + (layout.pipeline - 2) * between + float(ranks[-1].parameters)
    assert held == pytest.approx(2 * parameters(MODEL).total)


@pytest.mark.parametrize("schedule", V_SCHEDULES)
def test_in_a_v_the_first_rank_has_the_head_and_so_the_logits(schedule: str) -> None:
    """arXiv:2401.10241 section 6: the first and the last stage lie on the same rank."""
    folded = peak(parse_layout(f"pp2:{schedule}"))
    assert float(folded.ranks[0].logits) > 0
    assert float(folded.ranks[-1].logits) == 0
    assert float(folded.ranks[0].parameters) > float(folded.ranks[-1].parameters)
    straight = peak(parse_layout("pp2:1f1b"))
    assert float(straight.ranks[0].logits) == 0
    assert float(straight.ranks[-1].logits) > 0


def test_the_second_rank_may_be_the_fullest() -> None:
    """gpipe holds all micro-batches on every rank, and the second one has a layer more than the first."""
    found = priced("pp4:gpipe", replace(MODEL, vocab=64), work(64))
    assert found.memory.stage == 1
    assert priced("pp4:1f1b", replace(MODEL, layers=32)).memory.stage == 0


def test_the_last_rank_is_named_by_its_number() -> None:
    assert priced("pp4:1f1b", replace(MODEL, vocab=400_000)).memory.stage == 3


def test_layers_by_hand_are_priced_in_columns_as_alone() -> None:
    hand = Layout(pipeline=4, schedule="1f1b", stage_layers=(4, 10, 9, 7))
    even = Layout(pipeline=4, schedule="1f1b")
    job = work()
    software = load_implementation(job.implementation)
    together = peak_memory(MODEL, nodes(4), job, stack([hand, even]), software)
    assert list(together.bytes) == pytest.approx([float(peak(hand).bytes), float(peak(even).bytes)])
    assert float(together.ranks[1].parameters[0]) > float(together.ranks[1].parameters[1])


def test_logits_of_all_micro_batches_wait_under_gpipe_but_not_under_1f1b() -> None:
    """8 micro-batches: the 7 that wait keep 16-bit logits and their fp32 softmax, 6 bytes for each of 1024 x 32000."""
    gpipe, plain = (peak(parse_layout(f"pp2:{name}"), workload=work(8)).ranks[-1] for name in ("gpipe", "1f1b"))
    layers = float(plain.activations)
    assert float(gpipe.activations) - 8 * layers == pytest.approx(7 * 6 * 1024 * 32000)


def test_frozen_layers_keep_no_activations_and_have_no_states() -> None:
    """The first rank's 8 layers of 32 are frozen; the embedding does not learn either."""
    job = work(tuning=Tuning("frozen", frozen_layers=8), states="mixed")
    model = replace(MODEL, layers=32)
    ranks = peak(parse_layout("pp4:1f1b"), model, job).ranks
    assert float(ranks[0].activations) == float(ranks[0].gradients) == float(ranks[0].optimizer) == 0
    full = peak(parse_layout("pp4:1f1b"), model, work(states="mixed")).ranks
    assert float(ranks[-1].optimizer) == float(full[-1].optimizer) > 0
    assert float(ranks[1].activations) == pytest.approx(float(full[0].activations) * 3 / 4)


@pytest.mark.parametrize("text", ["zero1:8", "zero1:8 ep2", "zero2:4", "ddp2 zero1:4 ep4", "zero3:8 ep8"])
def test_optimizer_states_of_a_mixture_are_kept_once_in_every_shard_group(text: str) -> None:
    """Ranks of one shard group share 12 bytes of master copy and moments a parameter (arXiv:1910.02054 figure 1)."""
    layout = parse_layout(text)
    job = work(states="mixed")
    one = float(peak(layout, MIXTURE, job).ranks[0].optimizer)
    # every rank holds layout.expert'th parts: all of them together have each parameter once a replica
    assert one * layout.shard == pytest.approx(12 * parameters(MIXTURE).total)


def test_zero_2_scatters_gradients_for_every_micro_batch_and_zero_1_once() -> None:
    """8 ranks, 4 micro-batches of one sequence."""
    once, every = priced("zero1:8 mbs1"), priced("zero2:8 mbs1")
    assert sent(every, "data", "reduce-scatter")[1] == pytest.approx(4 * sent(once, "data", "reduce-scatter")[1])
    assert sent(every, "data", "all-gather") == pytest.approx(sent(once, "data", "all-gather"))


def test_fsdp_gathers_each_layer_and_the_tables_twice_a_micro_batch() -> None:
    """2 x 2 bytes x N x 7/8 sent in all-gathers for each of 4 micro-batches."""
    count, sent_bytes = sent(priced("fsdp8 mbs1"), "data", "all-gather")
    assert sent_bytes == pytest.approx(4 * 2 * 2 * parameters(MODEL).total * 7 / 8)
    assert count == 4 * 2 * (30 + 1)


def test_ranks_of_one_send_nothing() -> None:
    assert priced("ddp1").traffic == ()


def test_a_tied_table_is_summed_between_first_and_last_stage() -> None:
    """2 x bytes x 1/2 sent by each of the two (Megatron-LM's embedding group)."""
    tied = replace(MODEL, tied_embeddings=True)
    assert sent(priced("pp4:1f1b", tied, work(states="mixed")), "data", "all-reduce")[1] == 2 * 32000 * 2048
    assert sent(priced("pp4:1f1b"), "data", "all-reduce") == (0, 0)
    assert sent(priced("pp4:zbvzerobubble", tied), "data", "all-reduce") == (0, 0)


LORA, HALF = Tuning("lora", lora_rank=8), Tuning("frozen", frozen_layers=15)


@pytest.mark.parametrize("tuning", [LORA, HALF, Tuning("frozen", frozen_layers=29)])
def test_what_does_not_learn_takes_less_time_and_utilisation_stays_below_one(tuning: Tuning) -> None:
    full, part = priced("ddp8"), priced("ddp8", workload=work(tuning=tuning))
    assert part.step_seconds < full.step_seconds
    assert 0 < part.mfu <= part.hfu < 1
    assert part.time["head and embedding"] <= full.time["head and embedding"]


def test_flops_of_adapters_are_two_thirds_and_of_frozen_layers_a_third() -> None:
    """Without a head to speak of and short sequences: 4N a token of 6N, and 2N in each frozen layer."""
    model, job = replace(MODEL, vocab=1), make_workload(1, 8)
    full = priced("ddp8", model, job).model_flops
    assert priced("ddp8", model, replace(job, tuning=LORA)).model_flops == pytest.approx(full * 2 / 3, rel=1e-3)
    frozen = priced("ddp8", model, replace(job, tuning=HALF)).model_flops
    assert frozen == pytest.approx(full * (1 / 2 + 1 / 2 / 3), rel=1e-3)


def test_a_window_bounds_the_keys_that_a_token_meets() -> None:
    """12 x layers x heads x head_dim x keys x tokens: half of the layers see 256 of 1024 keys."""
    full = priced("ddp8").model_flops
    half = priced("ddp8", replace(MODEL, attention_window=256, window_every=2)).model_flops
    assert full - half == pytest.approx(12 * 15 * 16 * 128 * (1024 - 256) * 1024 * 32)


def test_latent_attentions_scores_have_their_own_widths() -> None:
    """6 x (128 + 64 + 128) a layer, head, key and token for DeepSeek-V3's heads (arXiv:2412.19437 section 4.2)."""
    model = replace(MODEL, latent=LATENT)
    short, long_ = (priced("ddp8", model, make_workload(s, 8)).model_flops / s for s in (1024, 2048))
    assert long_ - short == pytest.approx(8 * 6 * 30 * 16 * 320 * 1024)


def test_down_projections_of_latent_attention_are_whole_on_every_tensor_rank() -> None:
    model = replace(MODEL, latent=LATENT)
    one, two = (peak(parse_layout(f"tp{t}"), model, work(states="mixed")).ranks[0].parameters for t in (1, 2))
    whole = 30 * (2048 * 512 + 2048 * (256 + 64) + 512 + 256 + 2 * 2048) + 2048
    assert 2 * float(two) - float(one) == pytest.approx(2 * whole)


def test_offloaded_states_that_a_host_cannot_hold_do_not_fit() -> None:
    """14 bytes of each of the 1.4e9 parameters are 18 GiB."""
    layout = "zero1:8 offload:optimizer"
    assert priced(layout).memory.verdict != DOES_NOT_FIT
    assert priced(layout, host_memory_bytes=16 * 2.0**30).memory.verdict == DOES_NOT_FIT


def test_with_its_optimizer_offloaded_zero_2_keeps_no_gradients() -> None:
    assert float(peak(parse_layout("zero2:8 offload:optimizer")).ranks[0].gradients) == 0
    assert float(peak(parse_layout("zero1:8 offload:optimizer")).ranks[0].gradients) > 0


def test_a_bubble_is_never_negative() -> None:
    for schedule in SCHEDULES:
        for pipeline in (2, 3, 4):
            layout = Layout(pipeline=pipeline, schedule=schedule, virtual_stages=1 if schedule == "1f1b" else 2)
            if schedule in ("gpipe", "1f1b"):
                layout = replace(layout, virtual_stages=1)
            found = estimate(replace(MODEL, layers=24), nodes(pipeline), work(24), layout)
            assert found.bubble >= 0, layout
            assert np.isclose(sum(found.time.values()), found.step_seconds)


WIDE = replace(MODEL, layers=32)


def learned(text: str, frozen: int, by_cost: bool = False) -> tuple[float, float, float]:
    """Layers that learn on the first, an ordinary and the last rank."""
    tuning = Tuning("frozen", frozen_layers=frozen)
    layout = columns_of(parse_layout(text))
    found = learned_layers(WIDE, layout, by_cost, tuning, rank_layers(WIDE, layout, by_cost))
    return float(found.first), float(found.middle), float(found.last)


@pytest.mark.parametrize(
    ("text", "frozen", "by_rank"),
    [
        ("pp4:1f1b", 12, (0, 8, 8)),
        ("pp4:interleaved1f1b:4", 16, (4, 4, 4)),
        ("pp4:interleaved1f1b:4", 24, (2, 2, 2)),
        ("pp4:zbvzerobubble", 16, (4, 4, 4)),
        ("pp4:zbvzerobubble", 24, (4, 4, 0)),
        ("pp2:zbvzerobubble stages:7-21-3-1", 16, (1, 15, 15)),
        ("pp4:interleaved1f1b:2 stages:1-2-3-4-5-6-7-4", 10, (5, 7, 4)),
    ],
)
def test_layers_that_learn_lie_where_their_stages_do(text: str, frozen: int, by_rank: tuple[int, ...]) -> None:
    """Stage i on rank i mod p; in a V, on rank i and on 2p - 1 - i (arXiv:2104.04473, arXiv:2401.10241)."""
    assert learned(text, frozen) == pytest.approx(by_rank)


def test_frozen_layers_of_an_interleaved_pipeline_have_no_backward() -> None:
    full = priced("pp4:interleaved1f1b:4", WIDE)
    half = priced("pp4:interleaved1f1b:4", WIDE, work(tuning=Tuning("frozen", frozen_layers=16)))
    assert half.time["backward"] == pytest.approx(full.time["backward"] / 2)


@pytest.mark.parametrize("text", ["pp4:1f1b", "pp4:interleaved1f1b:2", "pp2:zbvzerobubble", "pp8:zbvzerobubble"])
def test_a_cut_by_cost_gives_every_rank_layers_and_no_more_than_its_stages_share(text: str) -> None:
    """A stage gets at most one layer more than its share of layers and head together."""
    layout = parse_layout(text)
    model = replace(MODEL, layers=16, vocab=128_000)
    found = balanced_layers(model, columns_of(layout), True)
    head = model.vocab * model.hidden / ((parameters(model).total - 2 * model.vocab * model.hidden) / model.layers)
    most = layout.virtual_stages * ((model.layers + head) / layout.stages + 1)
    for rank in (found.first, found.middle, found.last):
        assert float(rank) <= most
    # the last stage may have the head alone, but in a V its rank has the first stage too
    assert float(found.first) > 0
    assert float(found.middle) > 0


def test_layers_by_hand_count_on_the_rank_that_has_them() -> None:
    """18 layers on rank 6 of 8, which holds 2 micro-batches of 32 under 1f1b (arXiv:1806.03377)."""
    found = peak(parse_layout("pp8:1f1b stages:2-2-2-2-2-2-18-2"), WIDE)
    assert int(found.stage) == 6
    assert float(found.ranks[6].activations) == pytest.approx(float(found.ranks[1].activations) * (18 * 2) / (2 * 7))


def test_a_step_lasts_at_least_as_long_as_the_slowest_ranks_own_work() -> None:
    found = priced("pp2:zbvzerobubble stages:2-14-14-2", WIDE)
    assert found.bubble >= 0


def test_tied_tables_that_do_not_learn_are_neither_kept_twice_nor_summed() -> None:
    tied = replace(WIDE, tied_embeddings=True)
    for tuning in (LORA, Tuning("frozen", frozen_layers=8)):
        found = priced("ddp2 pp2:1f1b", tied, work(tuning=tuning, states="mixed"))
        untied = priced("ddp2 pp2:1f1b", replace(WIDE, vocab=64), work(tuning=tuning, states="mixed"))
        table = 2 * 32000 * 2048
        extra = sent(found, "data", "all-reduce")[1] - sent(untied, "data", "all-reduce")[1]
        assert extra < table / 2, tuning


def test_a_narrow_table_is_summed_at_its_own_width() -> None:
    """OPT-350M has a table of width 512 under a hidden width of 1024."""
    narrow = replace(MODEL, tied_embeddings=True, embedding_dim=512)
    assert sent(priced("pp4:1f1b", narrow, work(states="mixed")), "data", "all-reduce")[1] == 2 * 32000 * 512


def test_fsdp_scatters_only_the_gradients_that_there_are() -> None:
    """Adapters of rank 8 on q, k, v and o: (2048 + 2048) x 8 twice and (2048 + 1024) x 8 twice a layer."""
    found = priced("fsdp8 mbs4", workload=work(tuning=LORA, states="mixed"))
    adapters = 30 * 8 * 2 * ((2048 + 2048) + (2048 + 1024))
    assert sent(found, "data", "reduce-scatter")[1] == pytest.approx(2 * adapters * 7 / 8)


def test_frozen_layers_exchange_nothing_backward() -> None:
    full, half = (priced("tp8", WIDE, work(tuning=t)) for t in (Tuning(), Tuning("frozen", frozen_layers=16)))
    for collective in ("all-gather", "reduce-scatter"):
        assert sent(half, "tensor", collective)[0] == pytest.approx(sent(full, "tensor", collective)[0] * 3 / 4)
    gathered, part = (priced("fsdp8", WIDE, work(tuning=t)) for t in (Tuning(), Tuning("frozen", frozen_layers=16)))
    layer = 2 * (parameters(WIDE).total - 2 * 32000 * 2048 - 2048) / 32 * 7 / 8
    less = sent(gathered, "data", "all-gather")[1] - sent(part, "data", "all-gather")[1]
    assert less == pytest.approx(4 * 16 * layer)


def test_a_learning_layers_gradient_is_whole_however_many_are_frozen() -> None:
    ranks = [
        peak(parse_layout("fsdp8"), replace(WIDE, vocab=64), work(tuning=tuning)).ranks[0]
        for tuning in (Tuning(), Tuning("frozen", frozen_layers=16), Tuning("frozen", frozen_layers=31))
    ]
    assert float(ranks[0].gathered) == float(ranks[1].gathered) == float(ranks[2].gathered) > 0


def test_in_a_pipeline_zero_2_keeps_and_sends_what_zero_1_does() -> None:
    """PyTorch's stages synchronise gradients with the last micro-batch alone."""
    one, two = priced("zero1:4 pp2:1f1b"), priced("zero2:4 pp2:1f1b")
    assert two.memory.peak_bytes == one.memory.peak_bytes
    assert two.step_seconds == one.step_seconds
    assert sent(two, "data", "reduce-scatter") == sent(one, "data", "reduce-scatter")


def test_adapters_on_attention_are_none_of_the_experts() -> None:
    """Their gradients are summed over all data ranks, not over an expert's few."""
    found = priced("ddp8 ep8", MIXTURE, work(tuning=LORA, states="mixed"))
    adapters = 30 * 8 * 2 * ((2048 + 2048) + (2048 + 1024))
    assert sent(found, "data", "all-reduce")[1] == pytest.approx(2 * 2 * adapters * 7 / 8)


def test_the_host_memory_of_columns_is_that_of_single_layouts() -> None:
    job = work(tuning=Tuning("frozen", frozen_layers=1))
    layouts = [parse_layout(f"zero1:4 pp{p}:1f1b offload:optimizer") for p in (2, 4)]
    software = load_implementation(job.implementation)
    together = peak_memory(WIDE, nodes(16), job, stack(layouts), software).host
    alone = [float(peak_memory(WIDE, nodes(16), job, columns_of(x), software).host) for x in layouts]
    assert list(together) == pytest.approx(alone)


def test_frozen_parameters_stay_with_the_workers() -> None:
    """Workers push 2 bytes of each adapter to the servers, and nothing of the weights."""
    found = priced("ps8x4", workload=work(tuning=LORA, states="mixed"))
    adapters = 30 * 8 * 2 * ((2048 + 2048) + (2048 + 1024))
    assert sent(found, "servers", "push")[1] == pytest.approx(2 * adapters)


def test_hardware_flops_count_recomputed_attention_as_model_flops_do() -> None:
    """Full recomputation runs the layers' forward again: a third of 6N and of the attention term, without the head."""
    found = priced("ddp8 ac:full", MODEL, make_workload(4096, 8))
    head = 6 * MODEL.vocab * MODEL.hidden * 8 * 4096
    assert found.hardware_flops - found.model_flops == pytest.approx((found.model_flops - head) / 3, rel=0.01)
