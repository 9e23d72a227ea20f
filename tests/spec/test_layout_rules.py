"""Each rule by an example that breaks it, with the legal values that the refusal names."""

from __future__ import annotations

import pytest

from meshwright.spec.errors import LayoutError
from meshwright.spec.layout import Layout
from meshwright.spec.model import Model
from meshwright.spec.notation import parse_layout
from meshwright.spec.rules import check_layout, check_shape, violations
from meshwright.spec.workload import Tuning, Workload

from .jobs import GPT2, LLAMA_70B, MIXTRAL, V100, cluster, work


def refusal(
    text: str, model: Model = LLAMA_70B, workload: Workload | None = None, runtime: str | None = None
) -> LayoutError:
    """Why the layout is refused on just as many devices as it needs."""
    layout = parse_layout(text)
    with pytest.raises(LayoutError) as caught:
        check_layout(model, cluster(layout.devices), workload or work(), layout, runtime=runtime)
    return caught.value


def notes(text: str, model: Model = LLAMA_70B, workload: Workload | None = None, runtime: str | None = None) -> str:
    """What is said of a legal layout on just as many devices as it needs."""
    layout = parse_layout(text)
    return "\n".join(check_layout(model, cluster(layout.devices), workload or work(), layout, runtime=runtime))


def test_the_degrees_multiply_to_the_devices() -> None:
    with pytest.raises(LayoutError, match="56 devices, 64xH100 has 64") as caught:
        check_layout(LLAMA_70B, cluster(64), work(), parse_layout("fsdp7 tp8"))
    assert caught.value.legal == ("fsdp8 tp8",)


@pytest.mark.parametrize(
    ("text", "model", "legal"),
    [
        ("ep8", LLAMA_70B, ("ddp8",)),
        ("ep8", MIXTRAL, ("ddp8 ep8",)),
        ("tp3", LLAMA_70B, ("ddp2 tp4", "ddp4 tp2", "tp8")),
        ("fsdp5 tp4", LLAMA_70B, ("fsdp2 tp4",)),
        ("pp7:interleaved1f1b:2", LLAMA_70B, ("pp8:interleaved1f1b:2", "ddp2 pp4:interleaved1f1b:2")),
    ],
)
def test_what_does_not_fill_the_cluster_is_answered_with_legal_layouts_near_it(
    text: str, model: Model, legal: tuple[str, ...]
) -> None:
    with pytest.raises(LayoutError) as caught:
        check_layout(model, cluster(8), work(), parse_layout(text))
    assert caught.value.legal[: len(legal)] == legal


@pytest.mark.parametrize(
    "text", ["ep8", "tp3", "tp6 cp2", "pp7", "pp3:dualpipev", "fsdp3 tp5 pp2", "hsdp2x3 ep4", "ddp3"]
)
@pytest.mark.parametrize("model", [LLAMA_70B, MIXTRAL])
def test_every_layout_that_a_refusal_names_can_be_run(text: str, model: Model) -> None:
    with pytest.raises(LayoutError) as caught:
        check_layout(model, cluster(16), work(), parse_layout(text))
    assert caught.value.legal
    for named in caught.value.legal:
        check_layout(model, cluster(16), work(), parse_layout(named))


def test_fewer_devices_will_do_when_asked() -> None:
    layout = parse_layout("fsdp4 tp8")
    with pytest.raises(LayoutError):
        check_layout(LLAMA_70B, cluster(64), work(), layout)
    check_layout(LLAMA_70B, cluster(64), work(), layout, spare=True)
    with pytest.raises(LayoutError):
        check_layout(LLAMA_70B, cluster(16), work(), layout, spare=True)


def test_data_ranks_and_micro_batch_divide_the_global_batch() -> None:
    error = refusal("fsdp8 tp4 mbs3", workload=work(global_batch=512))
    assert "not a multiple of 24" in str(error)
    assert set(error.legal) == {"global batch 504", "global batch 528", "mbs2", "mbs4"}


def test_heads_are_divisible_by_the_tensor_degree() -> None:
    error = refusal("tp8", GPT2, work(seq_len=1024))
    assert "12 attention heads" in str(error)
    # 12, 6 and 3 divide the heads but not the 1,024 tokens that sequence parallelism splits.
    assert error.legal == ("tp4", "tp2", "tp1")


@pytest.mark.parametrize("asked", [5, 7, 8, 9, 10, 24])
def test_every_tensor_degree_that_a_refusal_names_is_legal(asked: int) -> None:
    workload = work(seq_len=1020)
    named = [text for text in refusal(f"tp{asked}", GPT2, workload).legal if text.startswith("tp") and ":" not in text]
    assert named
    layouts = [parse_layout(text) for text in named]
    assert [violations(GPT2, cluster(one.devices), workload, one) for one in layouts] == [()] * len(named)


def test_key_value_heads_are_shared_but_never_cut() -> None:
    three_groups = Model("three-groups", 80, 8192, 64, 3, 128, 28672, 32000, 4096)
    assert "3 key/value heads" in str(refusal("tp8", three_groups))


def test_key_value_heads_fewer_than_ranks_are_noted() -> None:
    assert "megatron-core before 0.16 refuses" in notes("tp16")
    assert "key/value" not in notes("tp8")


def test_the_feed_forward_width_is_divisible_by_the_tensor_degree() -> None:
    odd = Model("odd", 80, 8192, 64, 64, 128, 28670, 32000, 4096)
    error = refusal("tp4", odd)
    assert "28670" in str(error)
    assert error.legal == ("tp2", "tp1")


def test_sequence_parallelism_divides_what_context_parallelism_left() -> None:
    error = refusal("tp8 cp2", workload=work(seq_len=4104))
    assert "4104 tokens over tensor × context = 16" in str(error)
    assert {"sequence length 4096", "sequence length 4112", "tp8:nosp"} <= set(error.legal)
    assert notes("tp8:nosp cp2", workload=work(seq_len=4104))


def test_megatron_pads_gpt2s_vocabulary_to_50688_rows_on_4_tensor_ranks() -> None:
    # ceil(50257 / (128 × 4)) = 99, and 99 × 512 = 50688.
    assert "by 431 rows to 50688" in notes("tp4", GPT2, work(seq_len=1024))


def test_tensor_parallelism_beyond_the_node_is_a_warning() -> None:
    assert "leaves the node" in notes("tp16")


def test_the_sequence_is_divisible_by_the_context_degree() -> None:
    error = refusal("cp3", workload=work(seq_len=4096))
    assert set(error.legal) == {"cp2", "cp4", "cp1"}


def test_pytorch_loses_the_load_balance_where_megatron_refuses() -> None:
    odd = work(seq_len=4100)  # 4 × 1025
    assert "drops the load balance" in notes("cp4", workload=odd)
    assert "Megatron refuses this" in notes("cp4", workload=odd)
    assert "sequence length 4096" in refusal("cp4", workload=odd, runtime="megatron").legal
    assert "load balance" not in notes("cp4", workload=work(seq_len=4096))


def test_ulysses_gives_each_rank_its_own_heads() -> None:
    error = refusal("cp16:ulysses tp8")
    assert "64 heads and 8 key/value heads" in str(error)
    assert error.legal[0] == "cp8:ulysses"
    assert "copies each of the 8 key/value heads to 2 ranks" in notes("cp8:ulysses tp2")


@pytest.mark.parametrize(
    ("text", "model", "said", "legal"),
    [
        ("fsdp8 ep8", LLAMA_70B, "no experts", "ep1"),
        ("fsdp16 ep16", MIXTRAL, "8 experts", "ep8"),
        ("fsdp2 ep4", MIXTRAL, "cannot be taken from", "ep2"),
    ],
)
def test_expert_ranks_divide_the_experts_and_the_other_ranks(text: str, model: Model, said: str, legal: str) -> None:
    error = refusal(text, model)
    assert said in str(error)
    assert error.legal[0] == legal


def test_expert_ranks_come_from_different_ranks_in_each_runtime() -> None:
    # Megatron folds tensor ranks in, DeepSpeed takes data ranks only, torchtitan no replicas.
    assert "DeepSpeed refuses this" in notes("fsdp2 tp4 ep8", MIXTRAL)
    assert refusal("fsdp2 tp4 ep8", MIXTRAL, runtime="deepspeed").legal[0] == "ep2"
    assert "torchtitan" in notes("ddp8 ep8", MIXTRAL)


def test_stages_are_no_more_than_layers() -> None:
    error = refusal("pp16", GPT2, work(seq_len=1024))
    assert "12 layers cannot fill 16 stages" in str(error)
    assert error.legal[0] == "pp12"


def test_a_schedule_stays_in_what_is_suggested_for_too_many_stages() -> None:
    error = refusal("pp8:interleaved1f1b:20")
    assert error.legal[0] == "pp8:interleaved1f1b:10"
    assert all(":interleaved1f1b:" in text and parse_layout(text).stages <= 80 for text in error.legal)
    assert all(text.endswith(":dualpipev") for text in refusal("pp48:dualpipev").legal)


def test_stages_by_hand_that_are_too_many_ask_for_pipeline_ranks() -> None:
    with pytest.raises(LayoutError, match="lists 2 stages, the layout has 1 stage for 32 layers") as caught:
        parse_layout("stages:16-16")
    assert caught.value.legal == ("pp2:1f1b stages:16-16", "no stages")
    with pytest.raises(LayoutError) as caught:
        parse_layout("pp4 stages:16-16")
    assert caught.value.legal == ("pp2:1f1b stages:16-16", "stages:8-8-8-8", "no stages")


def test_embedding_and_head_may_have_stages_of_their_own() -> None:
    # 12 layers and two more parts fill at most 14 stages, as in torchtitan.
    text = "pp14 stages:0-1-1-1-1-1-1-1-1-1-1-1-1-0"
    assert "drops the remainder" not in notes(text, GPT2, work(seq_len=1024))


def test_stages_by_hand_place_every_layer_once() -> None:
    error = refusal("pp4 stages:3-3-3-4", GPT2, work(seq_len=1024))
    assert error.legal == ("a sum of 12",)


def test_uneven_stages_are_noted_with_what_each_runtime_does() -> None:
    said = notes("pp8", GPT2, work(seq_len=1024))
    assert "some stages hold 2 and some 1" in said
    assert "Megatron refuses without" in said


def test_pytorchs_1f1b_refuses_what_megatron_runs() -> None:
    few = work(global_batch=4)
    assert "PyTorch refuses this" in notes("pp8", workload=few)
    assert "PyTorch refuses" not in notes("pp8", workload=few, runtime="megatron")
    assert "at least 8" in str(refusal("pp8", workload=few, runtime="pytorch"))
    assert "idle most of the time" in notes("pp8", workload=few)


def test_dualpipev_needs_two_micro_batches_for_each_rank() -> None:
    error = refusal("pp4:dualpipev", workload=work(global_batch=7))
    assert "at least 8" in str(error)
    assert "global batch 8" in error.legal


def test_interleaved_micro_batches_fill_their_rounds() -> None:
    # PyTorch's own example: 10 micro-batches on 4 ranks are 2 rounds of 5; 9 are not.
    assert "Megatron refuses this" in notes("pp4:interleaved1f1b", workload=work(global_batch=10))
    error = refusal("pp4:interleaved1f1b", workload=work(global_batch=9))
    assert "9 micro-batches" in str(error)
    assert "global batch 8" in error.legal


def test_zero_bubble_schedules_cannot_be_compiled() -> None:
    error = refusal("pp4:zbvzerobubble", workload=work(implementation="compiled"))
    assert "torch.compile" in str(error)


def test_deepspeeds_pipeline_refuses_zero2() -> None:
    assert "DeepSpeed refuses this" in notes("zero2:2 pp4")
    assert refusal("zero2:2 pp4", runtime="deepspeed").legal == ("zero1:2", "ddp2")
    assert "DeepSpeed" not in notes("zero1:2 pp4")


def test_fully_sharded_stages_are_gathered_for_every_micro_batch() -> None:
    assert "parameters are gathered 256 times a step" in notes("fsdp2 pp4", workload=work(global_batch=512))


def test_a_tied_embedding_lives_on_two_stages_unless_the_pipeline_is_folded() -> None:
    small = work(seq_len=1024)
    assert "tied embedding" in notes("pp4", GPT2, small)
    assert "tied embedding, and" not in notes("pp4:zbvzerobubble", GPT2, small)


def test_the_secondary_shard_stays_inside_the_node() -> None:
    error = refusal("fsdp64 hpz16")
    assert error.legal[0] == "hpz8"
    assert "PyTorch and Megatron refuse this" in notes("fsdp64 hpz8 quant:weights")


def test_fsdp2_offloads_everything_or_nothing() -> None:
    assert "PyTorch refuses this" in notes("fsdp8 offload:optimizer")
    assert "PyTorch" not in notes("fsdp8 offload:optimizer+parameters")


def test_a_v100_has_no_bf16() -> None:
    with pytest.raises(LayoutError, match="V100 has no bf16") as caught:
        check_layout(LLAMA_70B, cluster(8, device=V100), work(), parse_layout("fsdp8"))
    assert caught.value.legal == ("fp16", "fp32")


def test_fp8_needs_multiples_of_16_on_each_rank() -> None:
    # 3072 / 12 = 256 is a multiple of 16, 12 heads × 64 / 12 = 64 too; a width of 3080 is not.
    odd = Model("odd", 12, 768, 12, 12, 64, 3080, 50257, 1024)
    assert "multiples of 16" in str(refusal("tp4", odd, work(precision="fp8")))
    assert "multiples of 16" not in notes("tp4", GPT2, work(seq_len=1024, precision="fp8"))


def test_a_sequence_fits_the_learned_position_table() -> None:
    error = refusal("tp4", GPT2, work(seq_len=2048))
    assert error.legal == ("sequence length 1024",)
    assert "Megatron's argument check refuses" in notes("tp4", LLAMA_70B, work(seq_len=8192))


def test_some_layer_learns() -> None:
    frozen = work(seq_len=1024, tuning=Tuning("frozen", frozen_layers=12))
    assert refusal("tp4", GPT2, frozen).legal == ("0 to 11",)


def test_lora_targets_exist() -> None:
    lora = work(seq_len=1024, tuning=Tuning("lora", lora_targets=("q", "gate")))
    assert "no gate" in str(refusal("tp4", GPT2, lora))


def test_the_refusal_names_every_other_broken_rule() -> None:
    error = refusal("tp3 cp3")
    assert "64 attention heads" in str(error)
    assert "Also: the sequence is not divisible by the context degree." in str(error)


@pytest.mark.parametrize(
    "layout",
    [
        Layout(schedule="zbv"),
        Layout(recompute="some"),
        Layout(context_kind="ringo"),
        Layout(offload=("nvme", "optimizer"), zero_stage=3),
        Layout(quantized=("weights", "weights"), zero_stage=3),
        Layout(shard=4),
        Layout(staleness=2),
        Layout(tensor=0),
        Layout(pipeline=-2),
        Layout(micro_batch=10**9),
    ],
)
def test_a_layout_built_by_hand_is_checked_like_a_parsed_one(layout: Layout) -> None:
    with pytest.raises(LayoutError):
        check_shape(layout)


def test_an_unknown_runtime_is_refused() -> None:
    with pytest.raises(LayoutError, match="pytorch, megatron, deepspeed"):
        check_layout(LLAMA_70B, cluster(8), work(), parse_layout("tp8"), runtime="jax")
