"""A person's words: what they are like, and what is no person's."""

from __future__ import annotations

import json
import math
import pickle
from collections import Counter
from pathlib import Path

import pytest

from meshwright.diagnose.described.reports import NOTHING, features, likeness, of_document, rarity, reports
from meshwright.diagnose.described.sentences import asks, complains, is_sentence
from meshwright.diagnose.described.topic import likeliest
from meshwright.diagnose.described.words import kinds, marks, patterns
from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.finding import POSSIBLE
from meshwright.spec.errors import RequestError

SCRIPTS = Path(__file__).parents[2] / "scripts"


def test_terms_are_words_without_endings_and_short_numbers() -> None:
    assert features("The ranks are hanging in all_reduce: error -9 after 1800000 ms")["terms"] == {
        "ranks", "hang", "all", "reduce", "error", "-9", "after", "ms",
    }  # fmt: skip


def test_words_that_follow_each_other_are_a_pair() -> None:
    pairs = features("ranks hang in all_reduce")["pairs"]
    assert len(pairs) == 3
    assert pairs & features("all ranks hang")["pairs"] == features("ranks hang")["pairs"]
    assert not pairs & features("hang ranks")["pairs"]


def test_likeness_is_a_softmax_over_scaled_features() -> None:
    # Two kinds, weights of 10 × 0.1 nats. The text has `a` alone (length 1) and the pattern p (share 0.7):
    # kind x gets 1 × 1.0, kind y gets 0.7 × 1.0.
    known = of_document(
        {"kinds": {"x": 2, "y": 2}, "bias": [0, 0], "terms": {"a": "2 0:10", "b": "3 1:10"}, "marks": {"p": "2 1:10"},
         "pairs": {"q": "2 1:10"}}
    )  # fmt: skip
    odds = known.likeness({"terms": ["a", "unknown"], "marks": ["p"]})
    assert odds["x"] == pytest.approx(math.exp(1.0) / (math.exp(1.0) + math.exp(0.7)))
    assert sum(odds.values()) == pytest.approx(1)
    # With both terms each counts by its rarity: ln(5/3) + 1 and ln(5/4) + 1, scaled to length 1 together.
    a, b = math.log(5 / 3) + 1, math.log(5 / 4) + 1
    both = known.likeness({"terms": ["a", "b"]})
    assert (rarity(2, 4), rarity(3, 4)) == pytest.approx((a, b))
    assert math.log(both["x"] / both["y"]) == pytest.approx((a - b) / math.hypot(a, b))
    # A pair (share 0.8) alone gives y 0.8 nats.
    paired = known.likeness({"pairs": ["q"]})
    assert math.log(paired["y"] / paired["x"]) == pytest.approx(0.8)


def test_a_text_of_no_known_word_is_like_what_healthy_jobs_print() -> None:
    odds = likeness("qqqq")
    assert max(odds, key=lambda kind: odds[kind]) == NOTHING
    assert likeliest("qqqq") == {}


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("After I add the second node the training hangs: all ranks wait in init_process_group", "rendezvous"),
        ("GPU utilization is low because the data loader with num_workers=2 cannot keep up", "dataloader_bound"),
        ("loss becomes NaN after some steps when training in fp16, the loss scale goes down to 1", "fp16_overflow"),
        ("With 8 GPUs the scheduler steps eight times per update, the learning rate decays too fast",
         "lr_schedule_scaling"),
    ],
)  # fmt: skip
def test_a_sentence_leads_to_its_kind(text: str, category: str) -> None:
    assert next(iter(likeliest(text))) == category


def test_every_kind_says_what_it_is_and_what_to_change() -> None:
    assert kinds().keys() == reports().kinds.keys() - {NOTHING}
    assert all(one["what"] and one["change"] for one in kinds().values())


def test_what_was_learned_is_of_the_patterns_that_are_there() -> None:
    assert reports().groups["marks"].keys() <= patterns().keys()
    assert len(reports().groups["marks"]) > 0.9 * len(patterns())


def test_what_was_learned_is_of_the_reports_that_are_kept() -> None:
    counted = Counter(
        json.loads(line)["category"]
        for name in ("reports.jsonl", "written.jsonl")
        for line in (SCRIPTS / name).read_text(encoding="utf-8").splitlines()
    )
    assert counted == reports().kinds


def test_a_pattern_of_two_parts_is_found_in_any_order() -> None:
    there = marks("It hangs\nwhen saving a checkpoint")
    assert there & marks("When I save a checkpoint\nit gets stuck")
    assert len(there) > len(marks("It hangs"))


@pytest.mark.parametrize("text", ["step 1 loss 2.5 lr 1e-4", "a=1 b=2 c=3", "[1, 2, 3]", ""])
def test_numbers_and_names_are_no_sentence(text: str) -> None:
    assert not is_sentence(text)


@pytest.mark.parametrize(
    "text", ["Training hangs on two nodes", "多机训练时卡住了，没有任何报错", "학습이 시작되지 않고 멈춰 있습니다"]
)
def test_people_write_sentences_in_any_script(text: str) -> None:
    assert is_sentence(text)


def test_a_sentence_that_quotes_a_program_is_still_a_persons() -> None:
    assert complains(["Our job is 3x slower on two nodes, and NCCL INFO says NET/Socket"], 1, known=True)
    assert not complains(["h1:10:12 [0] NCCL INFO the plugin was not found and is not used here"], 1, known=True)


def test_a_sentence_among_many_lines_of_a_program_is_no_complaint() -> None:
    lines = ["this run fails when the second node joins", *(f"step {at} loss 2.0" for at in range(30))]
    assert complains(lines[:1], 1, known=False)
    assert not complains(lines, len(lines), known=False)


def test_of_a_few_lines_that_tell_of_a_trouble_the_meaning_is_asked() -> None:
    assert asks(["NET/OFI Request completed with error. RC: 21"])
    assert not asks(["Number of uncorrectable ECC errors: 0"])


def test_of_a_log_of_a_program_the_meaning_of_one_line_is_not_asked(tmp_path: Path) -> None:
    error = "NET/OFI Request completed with error. RC: 21\n"
    (tmp_path / "a.log").write_text(error)
    assert any("by its words" in one.cause for one in diagnose([tmp_path]).findings)
    (tmp_path / "a.log").write_text(error + "".join(f"step {at} loss 2.0\n" for at in range(299)))
    assert not any("by its words" in one.cause for one in diagnose([tmp_path]).findings)


def test_a_few_lines_in_which_nobody_tells_of_a_trouble_are_told_if_they_are_very_like_one(tmp_path: Path) -> None:
    # The loader has nearly all of a batch's time.
    lines = "".join(f"Epoch {at} batch_time 2.31 data_time 2.05\n" for at in range(2))
    (tmp_path / "a.log").write_text(lines)
    assert diagnose([tmp_path]).findings[0].category == "dataloader_bound"


def test_words_that_are_sure_come_before_what_a_rule_of_a_message_holds_possible(tmp_path: Path) -> None:
    # The message tells no numbers; that the joint of a transducer has a vocabulary of logits, its words do.
    (tmp_path / "a.log").write_text(
        "RNN-T: CUDA out of memory in the joint network; logits of shape (16, 471, 20, 4233) over the vocabulary\n"
    )
    found = diagnose([tmp_path]).findings
    assert [one.category for one in found][:2] == ["oom_logits", "oom_capacity"]


def test_words_say_nothing_of_what_numbers_decide(tmp_path: Path) -> None:
    # 30 GiB are free, so that nothing is fragmented, whatever the message advises.
    (tmp_path / "a.log").write_text(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
        "79.11 GiB of which 30.00 GiB is free. Of the allocated memory 40.00 GiB is allocated by PyTorch, and 8.00 GiB "
        "is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.\n"
    )
    assert "fragmentation" not in {one.category for one in diagnose([tmp_path]).findings}


def test_words_alone_make_nothing_more_than_possible(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("Validation loop hangs because only rank 0 evaluates and the others wait.\n")
    found = diagnose([tmp_path]).findings
    assert found[0].category == "rank_conditional_collective"
    assert {one.confidence for one in found} == {POSSIBLE}


NOTE = "Validation loop hangs because only rank 0 evaluates and the others wait.\n"
UNFIT = json.dumps({"num_attention_heads": 52, "tensor_parallel_size": 8})


def test_what_a_person_tells_is_weighed_beside_a_configuration_that_cannot_hold(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text(NOTE)
    (tmp_path / "config.json").write_text(UNFIT)
    assert [one.category for one in diagnose([tmp_path]).findings][:2] == [
        "divisibility_heads", "rank_conditional_collective"
    ]  # fmt: skip


def test_of_a_job_s_folder_whose_cause_is_known_no_words_are_weighed(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text(NOTE)
    (tmp_path / "config.json").write_text(UNFIT)
    for rank in range(4):
        (tmp_path / f"rank{rank}.log").write_text("2025-01-01 00:00:00 INFO loading the model\n")
    assert [one.category for one in diagnose([tmp_path]).findings] == ["divisibility_heads"]


def test_a_text_with_control_characters_is_no_note(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text(NOTE)
    assert diagnose([tmp_path]).findings
    (tmp_path / "note.txt").write_text(NOTE.replace(" ", " \x01", 1))
    with pytest.raises(RequestError):
        diagnose([tmp_path])


def test_a_pickle_is_no_configuration_of_what_a_person_tells(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("cposix\nsystem\n")
    (tmp_path / "state.pickle").write_bytes(pickle.dumps({"fragmentation": "free blocks of the wrong size, reserved"}))
    with pytest.raises(RequestError):
        diagnose([tmp_path])


def test_a_page_of_words_is_no_note(tmp_path: Path) -> None:
    sentence = "Training hangs because only rank 0 evaluates and the others wait. "
    (tmp_path / "note.txt").write_text((sentence * 10 + "\n") * 10)
    assert diagnose([tmp_path]).findings
    (tmp_path / "note.txt").write_text((sentence * 10 + "\n") * 100)
    with pytest.raises(RequestError):
        diagnose([tmp_path])


def test_a_text_that_says_nothing_of_a_job_is_not_explained(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("Buy milk and bread\n")
    with pytest.raises(RequestError):
        diagnose([tmp_path])
