"""A person's words: what they are like, and what is no person's."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright.diagnose.described.reports import likeness, reports, terms_of
from meshwright.diagnose.described.topic import is_sentence, likeliest
from meshwright.diagnose.described.words import kinds, words
from meshwright.diagnose.diagnosis import diagnose
from meshwright.spec.errors import RequestError


def test_terms_are_words_without_endings_and_pairs_of_them() -> None:
    assert terms_of("The ranks are hanging in all_reduce") == {
        "ranks", "hang", "all", "reduce", "ranks hang", "hang all", "all reduce",
    }  # fmt: skip


def test_each_kind_has_counted_reports_and_no_term_is_of_one_alone() -> None:
    known = reports()
    assert min(known.kinds.values()) >= 1
    assert min(sum(by_kind.values()) for by_kind in known.terms.values()) >= 2


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
    assert likeliest(text)[0] == category


def test_every_kind_says_what_it_is_and_what_to_change() -> None:
    assert kinds().keys() == reports().kinds.keys() == words().keys()
    assert all(one["what"] and one["change"] for one in kinds().values())


def test_likeness_is_the_log_of_how_much_likelier_a_term_is_in_a_kind() -> None:
    # A text of no known term has the prior alone: the commonest kind is the likeliest.
    alone = likeness("qqqq")
    known = reports().kinds
    assert max(alone, key=lambda kind: alone[kind]) == max(known, key=lambda kind: known[kind])


@pytest.mark.parametrize("text", ["step 1 loss 2.5 lr 1e-4", "a=1 b=2 c=3", "[1, 2, 3]", ""])
def test_numbers_and_names_are_no_sentence(text: str) -> None:
    assert not is_sentence(text)


def test_a_text_that_says_nothing_of_a_job_is_not_explained(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("Buy milk and bread\n")
    with pytest.raises(RequestError):
        diagnose([tmp_path])
