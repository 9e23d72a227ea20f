"""Explanations: the textbook's numbers, the planner's numbers, and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cli.frame import main
from meshwright.cost.estimate import estimate
from meshwright.cost.parameters import parameters
from meshwright.plan.defaults import choose_global_batch
from meshwright.plan.explain import explain
from meshwright.plan.explain.notation import MEANINGS
from meshwright.plan.explain.options import OPTIONS
from meshwright.plan.explain.topics import TOPICS, find_topic
from meshwright.spec.cluster_text import parse_cluster
from meshwright.spec.errors import RequestError
from meshwright.spec.model_config import load_model
from meshwright.spec.notation import parse_layout
from meshwright.spec.tokens import TOKENS
from meshwright.spec.workload import make_workload

GIB = 2.0**30
EACH = pytest.mark.parametrize("topic", TOPICS)


def numbers(topic: str, **given: str) -> Any:
    return explain(topic, given).numbers


def text(topic: str, **given: str) -> str:
    return "\n".join(line for section in explain(topic, given).sections for line in section.lines)


@EACH
def test_every_topic_has_a_page_with_numbers_and_sources(topic: str) -> None:
    page = explain(topic)
    assert page.topic == topic
    assert page.sources
    assert page.numbers
    assert all(section.lines and all(section.lines) for section in page.sections)
    assert any(section.table and section.table.rows for section in page.sections)


@EACH
def test_tables_are_rectangular(topic: str) -> None:
    for section in explain(topic).sections:
        if section.table is not None:
            assert {len(row) for row in section.table.rows} == {len(section.table.columns)}


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
    else:
        yield value


@EACH
def test_numbers_are_plain_and_only_staleness_is_unbounded(topic: str) -> None:
    leaves = list(_leaves(dict(explain(topic).numbers)))
    assert all(type(leaf) in (int, float, str) for leaf in leaves)
    if topic != "async":
        assert all(math.isfinite(leaf) for leaf in leaves if isinstance(leaf, float))


@EACH
def test_a_topic_reads_known_options_only(topic: str) -> None:
    assert set(TOPICS[topic].options) <= set(OPTIONS)


def test_every_option_is_read_by_some_topic() -> None:
    assert {name for topic in TOPICS.values() for name in topic.options} == set(OPTIONS)


def test_words_for_a_topic_are_not_another_topic_s() -> None:
    words = [word for topic in TOPICS.values() for word in (topic.name, *topic.words)]
    assert len(set(words)) == len(words)


@pytest.mark.parametrize(("stage", "gib"), [("DDP", 106), ("ZeRO-1", 36), ("ZeRO-2", 25), ("ZeRO-3", 13)])
def test_zero_s_page_has_the_textbook_s_memory(stage: str, gib: int) -> None:
    found = numbers("zero", parameters="7.1e9", ranks="8")
    assert round(found["state_bytes_per_rank"][stage] / GIB) == gib


def test_zero_s_page_sends_one_and_a_half_times_ddp_s_bytes_at_stage_3() -> None:
    sent = numbers("zero", parameters="7.1B", ranks="16")["sent_bytes_per_step"]
    assert [sent[name] / sent["DDP"] for name in ("ZeRO-1", "ZeRO-2", "ZeRO-3")] == pytest.approx([1, 1, 1.5])


@pytest.mark.parametrize(("micro_batches", "share"), [("8", 0.467), ("32", 0.179), ("64", 0.099)])
def test_the_bubble_s_page(micro_batches: str, share: float) -> None:
    assert numbers("bubble", stages="8", micro_batches=micro_batches)["bubble"] == pytest.approx(share, abs=5e-4)


def test_alpha_and_beta_of_14_gigabytes_on_8_ranks() -> None:
    seconds = numbers("alpha-beta", size="14GB", ranks="8", bandwidth="10GB/s", latency="1us")["seconds"]
    assert seconds["all-reduce"] == pytest.approx(2.45 + 14e-6)


def test_tensor_parallelism_s_112_mib() -> None:
    found = numbers("tp", micro_batch="4", seq_len="4096", hidden="3584", heads="28", ranks="4")
    assert found["all_reduce_bytes"] == 112 * 2**20
    assert (found["all_reduces_forward"], found["all_reduces_backward"]) == (2, 2)


def test_sequence_parallelism_sends_the_same_and_keeps_less() -> None:
    found = numbers("sp", ranks="8")
    assert found["sent_bytes_per_layer"]["with"] == pytest.approx(found["sent_bytes_per_layer"]["without"])
    assert found["activation_bytes_per_layer"]["with"] < found["activation_bytes_per_layer"]["without"] / 2


def test_full_recomputation_adds_about_a_third_of_the_flops() -> None:
    extra = numbers("recompute")["extra_flops"]["fused attention"]
    assert 0.28 < extra["full"] < 1 / 3
    assert extra["none"] == 0


def test_zero_plus_plus_sends_a_quarter_over_all_ranks() -> None:
    sent = list(numbers("zero++", ranks="64")["sent_over_all_ranks"].values())
    assert sent[-1] / sent[0] == pytest.approx(0.25)


def test_lora_s_adapters_of_llama_2_7b() -> None:
    """Rank 16 beside q, k, v, o: 32 layers x 4 projections x 16 x (4096 + 4096)."""
    page = explain("lora", {"lora_rank": "16"}, model=load_model("llama-2-7b"))
    assert page.numbers["adapter_parameters"] == 32 * 4 * 16 * 8192


def test_one_eighth_of_the_experts_is_one_eighth_of_their_parameters() -> None:
    found = numbers("ep", ranks="8", experts="64", hidden="1024")
    assert found["expert_parameters_per_layer"] == 8 * 2 * 1024 * 1024


def test_mfu_of_gpt_3_in_korthikanti_s_table_5() -> None:
    """175B, 64 x 2048 tokens on 64 A100: 13.75 s are 51.4 per cent, arXiv:2205.05198."""
    page = explain(
        "mfu",
        {"global_batch": "64", "seq_len": "2048", "ranks": "64", "step_time": "13.75s"},
        model=load_model("gpt3-175b"),
    )
    assert page.numbers["mfu"] == pytest.approx(0.514, abs=0.005)


def test_a_server_for_each_worker_is_no_slower_than_one_server() -> None:
    one, many = (numbers("ps", ranks="8", servers=n)["step_seconds"] for n in ("1", "8"))
    assert many < one


def test_units_of_100_billion_parameters() -> None:
    assert numbers("units", parameters="100e9")["state_tib"] == pytest.approx(1.455, abs=1e-3)


def test_the_notation_s_page_names_every_token_and_only_legal_ones() -> None:
    shown = [token for tokens, _ in MEANINGS for token in tokens.split()]
    for token in shown:
        beside = {"quant": "fsdp8", "hpz8": "fsdp8", "stages": "pp4", "ep8": "fsdp8", "offload": "fsdp8"}
        assert parse_layout(f"{beside.get(token.split(':')[0], '')} {token}")
    assert all(any(token.startswith(known.head) for token in shown) for known in TOKENS)


def test_a_layout_s_page_prints_the_layout_back() -> None:
    page = explain("layout", layout=parse_layout("mbs2 TP4 fsdp8"))
    assert page.numbers["layout"] == "fsdp8 tp4 mbs2"
    assert page.numbers["devices"] == 32


@pytest.mark.parametrize(
    ("topic", "layout"),
    [
        ("zero", "zero2:8"),
        ("tp", "tp8 mbs2"),
        ("fsdp", "fsdp8 mbs2 ac:selective"),
        ("ddp", "ddp2 tp4"),
        ("sp", "fsdp2 tp4"),
    ],
)
def test_the_account_of_a_job_is_the_planner_s_estimate(topic: str, layout: str) -> None:
    model, cluster, chosen = load_model("llama-2-7b"), parse_cluster("8xA100-80GB"), parse_layout(layout)
    page = explain(topic, model=model, cluster=cluster, layout=chosen)
    work = make_workload(4096, choose_global_batch(model, cluster, 4096))
    priced = estimate(model, cluster, work, chosen)
    job = page.numbers["job"]
    assert job["step_seconds"] == priced.step_seconds
    assert job["memory_bytes"] == dict(priced.memory.parts)


def test_a_job_is_what_the_command_estimate_prices(capsys: pytest.CaptureFixture[str]) -> None:
    job = ["--cluster", "8xA100-40GB", "--layout", "fsdp8 ac:full", "--json"]
    assert main(["explain", "mfu", "--model", "llama-2-7b", *job]) == 0
    numbers = json.loads(capsys.readouterr().out)["numbers"]
    assert main(["estimate", "llama-2-7b", *job]) == 0
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert numbers["step_seconds"] == numbers["job"]["step_seconds"] == plan["step_seconds"]
    assert numbers["mfu"] == pytest.approx(plan["mfu"])


def test_a_measured_step_time_is_not_replaced_by_the_priced_one() -> None:
    llama, node = load_model("llama-2-7b"), parse_cluster("8xA100-40GB")
    page = explain("mfu", {"step_time": "200s"}, model=llama, cluster=node, layout=parse_layout("fsdp8"))
    assert page.numbers["step_seconds"] == 200.0


def test_given_micro_batches_make_the_job_s_batch() -> None:
    page = explain("pp", {"micro_batches": "16"}, layout=parse_layout("ddp2 pp4"))
    line = next(s for s in page.sections if s.heading == "In your job").lines[0]
    assert "32 x 4096 tokens" in line


def test_an_mfu_above_one_is_refused_with_the_least_step_time() -> None:
    with pytest.raises(RequestError, match="cannot be") as error:
        explain("mfu", {"step_time": "1ms"})
    assert "or more" in error.value.legal[0]


def test_1f1b_with_few_micro_batches_is_refused_by_pytorch_alone() -> None:
    schedules = explain("schedules", {"stages": "8", "micro_batches": "4"})
    table = next(s.table for s in schedules.sections if s.table)
    row = next(row for row in table.rows if row[0] == "1f1b")
    # (p-1) / (m+p-1) = 7 / 11
    assert row[2] == "63.6 %"
    assert "PyTorch refuses" in row[-1]
    for topic in ("bubble", "pp"):
        assert "PyTorch's 1f1b refuses 4 micro-batches on 8 ranks" in text(topic, stages="8", micro_batches="4")
        assert "refuses" not in text(topic, stages="8", micro_batches="8")


@pytest.mark.parametrize("topic", [name for name, topic in TOPICS.items() if "latency" in topic.options])
def test_pages_with_seconds_say_which_links_they_assume(topic: str) -> None:
    flat = "links: 10 GB/s and 7 µs a hop"
    # Eight ranks of 10 GB/s leave a node together.
    tiered = "links: 300 GB/s and 7 µs a hop inside a node, 80 GB/s a node and 7 µs a hop between nodes"
    said = tiered if topic == "zero++" else flat
    assert said in text(topic, bandwidth="10GB/s", latency="7us").splitlines()


def test_zero_s_states_are_those_of_the_estimate() -> None:
    model, cluster = load_model("llama-2-7b"), parse_cluster("8xA100-80GB")
    page = explain("zero", model=model, cluster=cluster, layout=parse_layout("zero1:8"))
    parts = page.numbers["job"]["memory_bytes"]
    whole = page.numbers["state_bytes_per_rank"]["ZeRO-1"]
    assert parts["parameters"] + parts["gradients"] + parts["optimizer"] == pytest.approx(whole)


def test_a_model_and_a_cluster_give_their_numbers() -> None:
    page = explain("zero", model=load_model("llama-2-7b"), cluster=parse_cluster("16xA100-40GB"))
    assert page.numbers["parameters"] == parameters(load_model("llama-2-7b")).total
    assert page.numbers["ranks"] == 16


@pytest.mark.parametrize(
    ("asked", "meant"), [("zer", "zero"), ("bubbel", "bubble"), ("pipline", "pp"), ("fdsp", "fsdp")]
)
def test_a_misspelt_topic_is_answered_with_the_nearest(asked: str, meant: str) -> None:
    with pytest.raises(RequestError) as error:
        find_topic(asked)
    assert meant in error.value.legal


@pytest.mark.parametrize(
    ("asked", "meant"), [("ZeRO", "zero"), ("gib", "units"), ("ssp", "async"), ("1f1b", "schedules")]
)
def test_case_and_other_words_do_not_matter(asked: str, meant: str) -> None:
    assert find_topic(asked).name == meant


def test_an_unlike_topic_is_answered_with_all_of_them() -> None:
    with pytest.raises(RequestError) as error:
        find_topic("xyzzy")
    assert error.value.legal == tuple(TOPICS)


@pytest.mark.parametrize(
    ("topic", "given", "part"),
    [
        ("zero", {"hidden": "4"}, "does not read --hidden"),
        ("zero", {"ranks": "0"}, "--ranks"),
        ("zero", {"ranks": "8.5"}, "--ranks"),
        ("zero", {"parameters": "many"}, "--parameters"),
        ("zero", {"parameters": "0"}, "above 0"),
        ("zero", {"bandwidth": "25"}, "--bandwidth"),
        ("zero", {"states": "mixt"}, "mixed"),
        ("tp", {"ranks": "3"}, "do not divide 32 heads"),
        ("tp", {"heads": "7", "ranks": "7"}, "do not divide --hidden"),
        ("hsdp", {"replicas": "3"}, "do not divide 8 ranks"),
        ("ep", {"ranks": "3"}, "do not divide 64 experts"),
        ("ep", {"experts": "4", "per_token": "8", "ranks": "2"}, "cannot visit 8 of 4"),
        ("pp", {"stages": "64"}, "do not fill"),
        ("cp", {"seq_len": "100", "ranks": "8"}, "do not split"),
        ("bubble", {"schedule": "1f1c"}, "1f1b"),
        ("async", {"staleness": "-2"}, "--staleness"),
    ],
)
def test_a_wrong_number_is_refused_with_what_is_legal(topic: str, given: dict[str, str], part: str) -> None:
    with pytest.raises(RequestError, match=part):
        explain(topic, given)


def test_contradictions_are_refused() -> None:
    llama, node, tp = load_model("llama-2-7b"), parse_cluster("8xA100-40GB"), parse_layout("tp8")
    for topic, options, nouns in (
        ("zero", {"parameters": "1e9"}, {"model": llama}),
        ("zero", {"bandwidth": "1GB/s"}, {"cluster": node}),
        ("tp", {"ranks": "4"}, {"layout": tp}),
    ):
        with pytest.raises(RequestError, match="say the same thing"):
            explain(topic, options, **nouns)  # type: ignore[arg-type]


def test_nouns_that_a_topic_does_not_read_are_refused() -> None:
    with pytest.raises(RequestError, match="--model"):
        explain("bubble", model=load_model("gpt2"))
    with pytest.raises(RequestError, match="--cluster"):
        explain("recompute", cluster=parse_cluster("8xH100"))
    with pytest.raises(RequestError, match="no experts"):
        explain("ep", model=load_model("llama-2-7b"))
    with pytest.raises(RequestError, match="no parameter servers"):
        explain("ps", layout=parse_layout("ddp8"))


WORDS = st.one_of(
    st.integers(-2, 10**10).map(str), st.sampled_from(["7B", "10GB/s", "5us", "1f1b", "zbvzerobubble", "2GB", ""])
)


@given(topic=st.sampled_from(sorted(TOPICS)), data=st.data())
@settings(max_examples=150, deadline=None)
def test_any_numbers_give_a_page_or_a_refusal(topic: str, data: st.DataObject) -> None:
    options = sorted(TOPICS[topic].options)
    chosen = data.draw(st.lists(st.sampled_from(options), max_size=3, unique=True)) if options else []
    numbers = {name: data.draw(WORDS) for name in chosen}
    try:
        sections = explain(topic, numbers).sections
    except RequestError:
        sections = None  # refused with a message: as good an answer as a page
    assert sections is None or sections


def test_the_command_prints_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "zero", "--parameters", "7.1e9", "--ranks", "8"]) == 0
    out = capsys.readouterr().out
    assert "105.8 GiB" in out
    assert "arXiv:1910.02054" in out


def test_the_command_alone_lists_the_topics(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    out = capsys.readouterr().out
    assert all(topic.name in out and topic.summary in out for topic in TOPICS.values())


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "async", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["numbers"]["kinds"]["unbounded"]["worst_staleness"] is None
    assert main(["explain", "--json"]) == 0
    assert [topic["topic"] for topic in json.loads(capsys.readouterr().out)["topics"]] == list(TOPICS)


@pytest.mark.parametrize(
    "words",
    [["zer"], ["zero", "--hidden", "4"], ["--ranks", "3"], ["zero", "--model", "lama"], ["tp", "--layout", "tp"]],
)
def test_a_wrong_request_exits_with_2_and_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1


def test_zero_1_takes_no_longer_than_ddp_and_zero_3_half_as_long_again() -> None:
    """arXiv:1910.02054 section 7: the same bytes, and 1.5 times them."""
    seconds = numbers("zero", ranks="8")["seconds"]
    assert seconds["ZeRO-1"] == pytest.approx(seconds["DDP"])
    assert seconds["ZeRO-3"] == pytest.approx(1.5 * seconds["DDP"], rel=1e-3)


@pytest.mark.parametrize("schedule", ["zbvzerobubble", "dualpipev"])
def test_a_v_has_two_stages_a_rank_unless_told_otherwise(schedule: str) -> None:
    assert numbers("bubble", stages="8", micro_batches="32", schedule=schedule)["virtual_stages"] == 2
